"""BiT and ViT for MindSpore; the layers and their rules are in README.md."""
