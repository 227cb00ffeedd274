"""The ONNX operators that can be read, and the table that names them."""
