"""The live messages of closed lanes, written anew to fewer and larger segments, with the offsets that they have."""
