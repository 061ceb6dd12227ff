"""The pages, and what makes the site and its drawings of them."""
