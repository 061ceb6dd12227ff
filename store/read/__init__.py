"""Reading: finding, fetching, scanning, waiting, and feeding the message cache."""
