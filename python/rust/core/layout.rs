//! Layouts.

use super::layout_error::raised;
use cuda_mem::view::{Index, LayoutError, Order};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple, PyType};

type Inner = cuda_mem::view::StridedLayout;

/// The positions of an array's elements in memory: shape, strides and the offset of the first element, in elements, and
/// the size of an element, in bytes. A layout is a value without memory.
///
/// Without `strides` the layout is dense in C order, and its `strides` is None. With `divide_strides`, `strides` counts
/// bytes.
///
/// >>> layout = cuda_mem.core.StridedLayout((480, 640, 3), None, 1)
/// >>> layout[:, ::-1].strides, layout[:, ::-1].slice_offset
/// ((1920, -3, 1), 1917)
#[pyclass(frozen, module = "cuda_mem.core")]
pub struct StridedLayout {
    pub inner: Inner,
    /// Whether the strides are only implied by the shape.
    pub is_implicit: bool,
}

/// Numbers of a tuple or of another sequence.
fn numbers(argument: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    match argument.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter_borrowed().map(|number| number.extract()).collect(),
        Err(_) => argument.extract(),
    }
}

/// The order of axes: "C", "F", or a permutation, whose axes `axes` receives.
fn order_of<'a>(argument: Option<&Bound<'_, PyAny>>, axes: &'a mut Vec<usize>) -> PyResult<Order<'a>> {
    let Some(argument) = argument else { return Ok(Order::C) };
    let refuse = || {
        let text = argument.repr().map_or_else(|_| String::new(), |text| text.to_string());
        PyValueError::new_err(format!("The stride_order must be 'K', 'C', 'F', or a permutation tuple. Got: {text}"))
    };
    if let Ok(name) = argument.extract::<&str>() {
        return match name {
            "C" => Ok(Order::C),
            "F" => Ok(Order::F),
            _ => Err(refuse()),
        };
    }
    *axes = argument.extract().map_err(|_| refuse())?;
    Ok(Order::Axes(axes))
}

/// What an integer or a slice selects of an axis.
fn index_of(item: &Bound<'_, PyAny>) -> PyResult<Index> {
    if item.is_instance_of::<PySlice>() {
        let (mut start, mut end, mut step) = (0, 0, 0);
        // SAFETY: the object is a slice, and the places are writable.
        if unsafe { ffi::PySlice_Unpack(item.as_ptr(), &mut start, &mut end, &mut step) } != 0 {
            return Err(PyErr::fetch(item.py()));
        }
        // What the slice leaves out is beyond the axis.
        return Ok(Index::Slice { start: Some(start as i64), end: Some(end as i64), step: step as i64 });
    }
    let at = item.extract().map_err(|_| PyTypeError::new_err("Expected slice instance or integer."))?;
    Ok(Index::At(at))
}

impl StridedLayout {
    /// A layout that has strides.
    fn strided(layout: Result<Inner, LayoutError>) -> PyResult<Self> {
        Ok(Self { inner: layout.map_err(raised)?, is_implicit: false })
    }

    /// A layout of numbers. `bytes`: the strides count bytes.
    pub fn of(shape: &[i64], strides: Option<&[i64]>, item_size: usize, bytes: bool) -> PyResult<Self> {
        let inner = match strides {
            None => Inner::dense(shape, item_size, Order::C),
            Some(strides) if bytes => Inner::with_byte_strides(shape, strides, item_size),
            Some(strides) => Inner::new(shape, strides, item_size),
        };
        Ok(Self { inner: inner.map_err(raised)?, is_implicit: strides.is_none() })
    }

    /// A layout of the arguments of a call.
    pub fn of_arguments(
        shape: &Bound<'_, PyAny>,
        strides: Option<&Bound<'_, PyAny>>,
        item_size: usize,
        bytes: bool,
    ) -> PyResult<Self> {
        let strides = strides.map(numbers).transpose()?;
        Self::of(&numbers(shape)?, strides.as_deref(), item_size, bytes)
    }

    pub fn strides_or_none<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.is_implicit { Ok(None) } else { PyTuple::new(py, self.inner.strides()).map(Some) }
    }

    fn copy(&self) -> Self {
        Self { inner: self.inner.clone(), is_implicit: self.is_implicit }
    }

    /// This layout as a dense one in the order of an argument.
    fn dense_in(&self, stride_order: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        if stride_order.is_none_or(|order| order.extract::<&str>().is_ok_and(|order| order == "K")) {
            // Implied strides are dense already.
            return Ok(Self { inner: self.inner.to_dense(), is_implicit: self.is_implicit });
        }
        let mut axes = Vec::new();
        let order = order_of(stride_order, &mut axes)?;
        let dense = self.inner.to_dense_in(order).map_err(raised)?;
        let is_implicit = self.is_implicit && !matches!(order, Order::Axes(_)) && dense == self.inner;
        Ok(Self { inner: dense, is_implicit })
    }
}

#[pymethods]
impl StridedLayout {
    #[new]
    #[pyo3(signature = (shape, strides, itemsize, divide_strides = false))]
    fn new(
        shape: &Bound<'_, PyAny>,
        strides: Option<&Bound<'_, PyAny>>,
        itemsize: i64,
        divide_strides: bool,
    ) -> PyResult<Self> {
        Self::of_arguments(shape, strides, item_size(itemsize)?, divide_strides)
    }

    /// A layout without gaps. `stride_order` is "C", "F", or a tuple of the axes from the slowest to the fastest.
    #[classmethod]
    #[pyo3(signature = (shape, itemsize, stride_order = None))]
    fn dense(
        _class: &Bound<'_, PyType>,
        shape: &Bound<'_, PyAny>,
        itemsize: i64,
        stride_order: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut axes = Vec::new();
        Self::strided(Inner::dense(&numbers(shape)?, item_size(itemsize)?, order_of(stride_order, &mut axes)?))
    }

    /// A layout without gaps and without an offset, with the shape and the item size of another. "K", the default, keeps
    /// the order of its strides.
    #[classmethod]
    #[pyo3(signature = (other, stride_order = None))]
    fn dense_like(
        _class: &Bound<'_, PyType>,
        other: PyRef<'_, Self>,
        stride_order: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        other.dense_in(stride_order)
    }

    /// As dense_like, of this layout.
    #[pyo3(signature = (stride_order = None))]
    fn to_dense(&self, stride_order: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        self.dense_in(stride_order)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.inner.ndim()
    }

    /// The extents.
    #[getter]
    pub fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }

    /// The strides in elements; None if the layout was made without.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.strides_or_none(py)
    }

    /// The strides in bytes; None if the layout was made without strides.
    #[getter]
    fn strides_in_bytes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        if self.is_implicit { Ok(None) } else { PyTuple::new(py, self.inner.byte_strides()).map(Some) }
    }

    /// The axes from the largest stride to the smallest.
    #[getter]
    fn stride_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.stride_order())
    }

    /// The number of elements.
    #[getter]
    fn volume(&self) -> i64 {
        self.inner.volume()
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.inner.item_size()
    }

    /// The offset of the element with indices 0, in elements.
    #[getter]
    fn slice_offset(&self) -> i64 {
        self.inner.offset()
    }

    /// The offset of the element with indices 0, in bytes.
    #[getter]
    fn slice_offset_in_bytes(&self) -> i64 {
        self.inner.byte_offset()
    }

    /// Whether no two elements share memory. False for contrived strides for which nothing but a long search would tell.
    #[getter]
    fn is_unique(&self) -> bool {
        self.inner.is_unique()
    }

    /// Whether the elements lie without gaps, and the last axis runs fastest.
    #[getter]
    fn is_contiguous_c(&self) -> bool {
        self.inner.is_contiguous_c()
    }

    /// Whether the elements lie without gaps, and the first axis runs fastest.
    #[getter]
    fn is_contiguous_f(&self) -> bool {
        self.inner.is_contiguous_f()
    }

    /// Whether the elements lie without gaps in some order of the axes.
    #[getter]
    fn is_contiguous_any(&self) -> bool {
        self.inner.is_contiguous()
    }

    /// Whether the elements lie without gaps from offset 0 on.
    #[getter]
    fn is_dense(&self) -> bool {
        self.inner.is_dense()
    }

    /// The lowest and the highest offset of an element, in elements; (0, -1) without elements.
    #[getter]
    fn offset_bounds(&self) -> (i64, i64) {
        self.inner.offset_bounds().map_or((0, -1), |bounds| bounds.into_inner())
    }

    /// The lowest offset of an element.
    #[getter]
    fn min_offset(&self) -> i64 {
        self.offset_bounds().0
    }

    /// The highest offset of an element.
    #[getter]
    fn max_offset(&self) -> i64 {
        self.offset_bounds().1
    }

    /// The size in bytes of memory that begins at offset 0 and holds all elements. ValueError if elements lie before it.
    fn required_size_in_bytes(&self) -> PyResult<usize> {
        self.inner.required_size().map_err(raised)
    }

    /// The same elements, in C order, in another shape. One extent may be -1.
    fn reshaped(&self, shape: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::strided(self.inner.reshaped(&numbers(shape)?))
    }

    /// The axes in another order.
    fn permuted(&self, axis_order: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::strided(self.inner.permuted(&numbers(axis_order)?))
    }

    /// Merges neighbouring axes that form one run of memory: those from `start_axis` to `end_axis`, and of these the ones
    /// that `mask` allows.
    #[pyo3(signature = (start_axis = 0, end_axis = -1, mask = None))]
    fn flattened(&self, start_axis: i64, end_axis: i64, mask: Option<u64>) -> PyResult<Self> {
        let dimensions = self.inner.ndim() as i64;
        if dimensions == 0 || self.inner.is_empty() {
            return Self::strided(Ok(self.inner.flattened()));
        }
        let place = |axis: i64| {
            let counted = if axis < 0 { axis + dimensions } else { axis };
            match usize::try_from(counted) {
                Ok(counted) if (counted as i64) < dimensions => Ok(counted),
                _ => {
                    Err(PyValueError::new_err(format!("Invalid axis: {axis} out of range for {dimensions} dimensions")))
                }
            }
        };
        // Bit n of upstream's masks is of axis n and the one before it.
        let mask = mask.map_or(u64::MAX, |mask| mask >> 1);
        Self::strided(self.inner.flattened_with(place(start_axis)?..=place(end_axis)?, mask))
    }

    /// The axes that `flattened` can merge: bit n for axis n and the one before it. Masks of layouts of the same shape
    /// combine by `&`.
    fn flattened_axis_mask(&self) -> u64 {
        self.inner.merge_mask() << 1
    }

    /// Without the axes of extent 1. Without elements, one axis of extent 0 is left.
    fn squeezed(&self) -> PyResult<Self> {
        Self::strided(Ok(self.inner.squeezed()))
    }

    /// With axes of extent 1 at the positions of `axis` in the new shape, an int or a tuple.
    fn unsqueezed(&self, axis: &Bound<'_, PyAny>) -> PyResult<Self> {
        let axes = match axis.extract::<i64>() {
            Ok(axis) => vec![axis],
            Err(_) => numbers(axis)?,
        };
        if axes.is_empty() {
            return Ok(self.copy());
        }
        let dimensions = self.inner.ndim() + axes.len();
        let places = axes.iter().map(|&axis| {
            usize::try_from(axis).map_err(|_| raised(LayoutError::Axis { operation: "unsqueezed", axis, dimensions }))
        });
        Self::strided(self.inner.unsqueezed(&places.collect::<PyResult<Vec<_>>>()?))
    }

    /// Repeats axes of extent 1, and adds axes in front, all with stride 0.
    fn broadcast_to(&self, shape: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::strided(self.inner.broadcast_to(&numbers(shape)?))
    }

    /// The same bytes as elements of another size. The extent of `axis` changes; its stride must be 1. A `data_ptr` other
    /// than 0 is checked for its alignment. Without `keep_dim`, an axis whose extent becomes 1 is removed.
    #[pyo3(signature = (itemsize, data_ptr = 0, axis = -1, keep_dim = true))]
    fn repacked(&self, itemsize: i64, data_ptr: usize, axis: i64, keep_dim: bool) -> PyResult<Self> {
        if itemsize == self.inner.item_size() as i64 {
            return Ok(self.copy());
        }
        if itemsize <= 0 {
            return Err(PyValueError::new_err(format!("new itemsize must be greater than zero, not {itemsize}")));
        }
        let packed = self.inner.repacked(itemsize as usize, data_ptr, axis).map_err(raised)?;
        let place = if axis < 0 { axis + packed.ndim() as i64 } else { axis } as usize;
        if keep_dim || itemsize < self.inner.item_size() as i64 || packed.shape()[place] != 1 {
            return Self::strided(Ok(packed));
        }
        // One index of an axis of extent 1.
        let mut whole = vec![Index::ALL; place];
        whole.push(Index::At(0));
        Self::strided(packed.sliced(&whole))
    }

    /// The largest item size, at most `max_itemsize`, to which `repacked` can change this layout along `axis`.
    #[pyo3(signature = (max_itemsize = 16, data_ptr = 0, axis = -1))]
    fn max_compatible_itemsize(&self, max_itemsize: i64, data_ptr: usize, axis: i64) -> PyResult<usize> {
        if max_itemsize <= 0 {
            return Err(PyValueError::new_err(format!("max_itemsize must be greater than zero, not {max_itemsize}")));
        }
        match self.inner.max_compatible_item_size(max_itemsize as usize, data_ptr, axis) {
            Err(LayoutError::ItemSize { .. }) => {
                let item_size = self.inner.item_size();
                let text =
                    format!("max_itemsize cannot be less than itemsize: {max_itemsize} is less than {item_size}");
                Err(PyValueError::new_err(text))
            }
            answer => answer.map_err(raised),
        }
    }

    /// A part: an int, a slice, or a tuple of these, as in `layout[2, ::-1]`.
    fn sliced(&self, slices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let indices = match slices.cast::<PyTuple>() {
            Ok(slices) => slices.iter().map(|item| index_of(&item)).collect::<PyResult<Vec<_>>>()?,
            Err(_) => vec![index_of(slices)?],
        };
        Self::strided(self.inner.sliced(&indices))
    }

    fn __getitem__(&self, slices: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.sliced(slices)
    }

    /// By value. Strides that are only implied equal the same strides.
    fn __eq__(&self, other: PyRef<'_, Self>) -> bool {
        self.inner == other.inner
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let strides = match self.strides_or_none(py)? {
            Some(strides) => strides.repr()?.to_string(),
            None => "None".to_owned(),
        };
        let offset = match self.inner.offset() {
            0 => String::new(),
            offset => format!(", _slice_offset={offset}"),
        };
        let (shape, size) = (self.shape(py)?.repr()?, self.inner.item_size());
        Ok(format!("StridedLayout(shape={shape}, strides={strides}, itemsize={size}{offset})"))
    }
}

fn item_size(argument: i64) -> PyResult<usize> {
    match usize::try_from(argument) {
        Ok(size) if size != 0 => Ok(size),
        _ => Err(PyValueError::new_err(format!("itemsize must be positive, not {argument}"))),
    }
}
