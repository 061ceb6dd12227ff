"""Recovery of a lane after a crash, and repair of damage."""
