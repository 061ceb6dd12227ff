"""What a lane's folder holds after a crash, and what is made of damage."""
