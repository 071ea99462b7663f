"""Models as ONNX: one file that any ONNX runtime computes, on any system, from any language."""
