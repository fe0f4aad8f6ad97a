"""What runs inside the sandbox. Standard library only: these files are copied there, and nothing else of ours is."""
