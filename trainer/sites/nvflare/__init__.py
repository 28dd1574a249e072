"""What runs in NVFLARE's own environment."""
