"""Arrays in device memory."""


class GPUArray:
    """An array in memory that another object owns."""

    def __init__(self, shape, dtype, gpudata):
        self.shape = shape
        self.dtype = dtype
        self.gpudata = gpudata
