"""ONNX networks, read and written."""
