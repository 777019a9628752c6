//! Nodes of graphs: what they do, and the parameters that the program stated.

use super::condition::Condition;
use super::graph::Inner;
use crate::call::Result;
use crate::state::handle::{handle_of, next_sequence};
use crate::state::memory::GraphBlock;
use crate::state::memory::{Range, RangeOfLaunch};
use crate::state::modules::Arguments;
use crate::state::streams::Event;
use crate::state::streams::Stream;
use crate::sync::lock;
use cuda_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D,
    CUDA_MEMSET_NODE_PARAMS, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphConditionalNodeType, CUgraphNodeType,
    CUmemAccessDesc, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::{fmt, ptr};

pub(crate) type Run = Box<dyn FnOnce() + Send>;

/// Prepares one run on a stream. Fails if memory that it uses is gone.
type Ready = dyn Fn(&Stream) -> Result<Run> + Send + Sync;

/// The work of a node.
pub(crate) enum Work {
    /// Work that each launch does.
    Again(Box<Ready>),
    Allocate(Allocated),
    Free(Arc<GraphBlock>),
    /// Records an event where the launch has come to.
    Record(Arc<Event>),
    /// Waits for an event's recording at the time of the launch.
    Wait(Arc<Event>),
    /// The work of a graph inside the node.
    Inside,
    /// The work of the graphs inside the node that a condition selects.
    If(Arc<Condition>, CUgraphConditionalNodeType),
}

/// A block that a graph allocates. Its address ends with the node.
pub(crate) struct Allocated(pub(crate) Arc<GraphBlock>);

impl Drop for Allocated {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Work {
    /// Work that holds no memory.
    pub(crate) fn plain(run: impl Fn() + Send + Sync + 'static) -> Self {
        let run = Arc::new(run);
        Self::Again(Box::new(move |_| {
            let run = run.clone();
            Ok(Box::new(move || run()))
        }))
    }

    /// Work on a range of memory. Each launch looks up the range again.
    pub(crate) fn on(range: &Range, run: impl Fn(&Range) + Send + Sync + 'static) -> Self {
        let (range, run) = (RangeOfLaunch::new(range), Arc::new(run));
        Self::Again(Box::new(move |_| {
            let (range, run) = (range.find()?, run.clone());
            Ok(Box::new(move || run(&range)))
        }))
    }

    /// Several pieces of work, one after the other.
    pub(crate) fn all(pieces: Vec<Work>) -> Self {
        Self::Again(Box::new(move |stream| {
            let ready = |piece: &Work| match piece {
                Work::Again(ready) => Some(ready(stream)),
                _ => None,
            };
            let runs = pieces.iter().filter_map(ready).collect::<Result<Vec<Run>>>()?;
            Ok(Box::new(move || runs.into_iter().for_each(|run| run())))
        }))
    }

    pub(super) fn is_of_memory(&self) -> bool {
        matches!(self, Work::Allocate(_) | Work::Free(_))
    }
}

/// The parameters of a node, as the program stated them or as a capture found them.
pub(crate) enum Params {
    Kernel(KernelParams),
    Copy(CUDA_MEMCPY3D),
    Fill(CUDA_MEMSET_NODE_PARAMS),
    Host(CUDA_HOST_NODE_PARAMS),
    Child(Inner),
    Conditional(Bodies),
    Empty,
    Record(CUevent),
    Wait(CUevent),
    Signal,
    WaitForSignal,
    Word,
    /// With the descriptors to which the parameters point.
    Allocate(CUDA_MEM_ALLOC_NODE_PARAMS, Box<[CUmemAccessDesc]>),
    Free(CUdeviceptr),
}

/// A launch's parameters, and the values to which they point.
pub(crate) struct KernelParams {
    params: CUDA_KERNEL_NODE_PARAMS_v2,
    arguments: Arc<Arguments>,
    list: Box<[*mut c_void]>,
}

impl KernelParams {
    pub(crate) fn new(params: CUDA_KERNEL_NODE_PARAMS_v2, arguments: &Arc<Arguments>) -> Self {
        Self { params, arguments: arguments.clone(), list: arguments.list().into() }
    }

    /// The parameters as the program sees them. The values end with this value.
    pub(crate) fn shown(&self) -> CUDA_KERNEL_NODE_PARAMS_v2 {
        let list = if self.list.is_empty() { ptr::null_mut() } else { self.list.as_ptr().cast_mut() };
        CUDA_KERNEL_NODE_PARAMS_v2 { kernelParams: list, extra: ptr::null_mut(), ..self.params }
    }
}

/// The graphs of a conditional node.
pub(crate) struct Bodies {
    pub(crate) graphs: Vec<Inner>,
    /// Their handles, which the program reads by the address that it got.
    pub(crate) shown: Box<[CUgraph]>,
}

// SAFETY: softgpu follows none of the pointers in parameters; it hands them to the program and to host functions, for
// which the program vouches.
unsafe impl Send for Params {}
// SAFETY: as above.
unsafe impl Sync for Params {}

impl Params {
    pub(crate) fn kind(&self) -> CUgraphNodeType {
        match self {
            Params::Kernel(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
            Params::Copy(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
            Params::Fill(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
            Params::Host(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
            Params::Child(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
            Params::Conditional(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            Params::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
            Params::Record(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Params::Wait(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Params::Signal => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
            Params::WaitForSignal => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            Params::Word => CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Params::Allocate(..) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Params::Free(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
        }
    }

    /// The parameters of an allocation that a capture recorded.
    pub(crate) fn allocation(device: usize, size: usize, address: u64) -> Self {
        let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: size, dptr: address, ..Default::default() };
        params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        let kind = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        params.poolProps.location = CUmemLocation { type_: kind, id: device as CUdevice };
        Params::Allocate(params, Box::default())
    }

    /// Whether the program may switch the node off in an executable graph.
    pub(super) fn may_be_off(&self) -> bool {
        matches!(self, Params::Kernel(_) | Params::Copy(_) | Params::Fill(_))
    }

    /// The same parameters for a copy of the node. Fails for the memory of graphs and for conditions, which cannot be
    /// copied.
    pub(super) fn copy(&self) -> Option<Self> {
        Some(match self {
            Params::Kernel(kernel) => Params::Kernel(KernelParams::new(kernel.params, &kernel.arguments)),
            Params::Copy(copy) => Params::Copy(*copy),
            Params::Fill(fill) => Params::Fill(*fill),
            Params::Host(host) => Params::Host(*host),
            Params::Child(inner) => Params::Child(inner.copy().ok()?),
            Params::Empty => Params::Empty,
            Params::Record(event) => Params::Record(*event),
            Params::Wait(event) => Params::Wait(*event),
            Params::Signal => Params::Signal,
            Params::WaitForSignal => Params::WaitForSignal,
            Params::Word => Params::Word,
            Params::Allocate(..) | Params::Free(_) | Params::Conditional(_) => return None,
        })
    }
}

/// The kind in the handles of nodes.
const NODE: u64 = 14;

/// The handle of a node.
pub(crate) fn handle(sequence: u64) -> usize {
    handle_of(NODE, sequence) as usize
}

/// The number in a node's handle, if it is one.
pub(crate) fn sequence_in(handle: usize) -> Option<u64> {
    let sequence = (handle as u64 & ((1 << 44) - 1)) >> 4;
    (handle_of(NODE, sequence) == handle as u64).then_some(sequence)
}

/// A node. New parameters make a new value with the same number.
pub(crate) struct Node {
    /// The number in its handle.
    pub(crate) sequence: u64,
    pub(crate) params: Params,
    pub(crate) work: Arc<Work>,
    attributes: Mutex<Attributes>,
}

/// The attributes of a launch by their numbers. They have no effect.
pub(crate) type Attributes = BTreeMap<u32, [u64; 4]>;

impl Node {
    pub(super) fn new(params: Params, work: Work) -> Arc<Self> {
        Arc::new(Self { sequence: next_sequence(), params, work: Arc::new(work), attributes: Mutex::default() })
    }

    /// The same node with other parameters.
    pub(super) fn changed(&self, params: Params, work: Work) -> Arc<Self> {
        let attributes = Mutex::new(self.attributes());
        Arc::new(Self { sequence: self.sequence, params, work: Arc::new(work), attributes })
    }

    /// A copy with a number of its own.
    pub(super) fn copy(&self) -> Option<Arc<Self>> {
        let params = self.params.copy()?;
        let attributes = Mutex::new(self.attributes());
        Some(Arc::new(Self { sequence: next_sequence(), params, work: self.work.clone(), attributes }))
    }

    pub(crate) fn attributes(&self) -> Attributes {
        lock(&self.attributes).clone()
    }

    pub(crate) fn set_attribute(&self, number: u32, value: [u64; 4]) {
        lock(&self.attributes).insert(number, value);
    }

    pub(crate) fn replace_attributes(&self, attributes: Attributes) {
        *lock(&self.attributes) = attributes;
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("sequence", &self.sequence)
            .field("kind", &self.params.kind())
            .finish_non_exhaustive()
    }
}
