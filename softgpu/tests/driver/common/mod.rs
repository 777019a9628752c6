//! Helpers for the tests: a fresh simulated machine, called through the table as any program calls it.
#![allow(dead_code, reason = "not every test uses all of it")]

pub mod graphs;

use cuda_sys::{CUcontext, CUdeviceptr, CUresult, CUstream, Driver};
use softgpu::Settings;
use std::ffi::c_void;
use std::process::Command;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A driver that one test has for itself.
pub struct Machine {
    pub driver: Driver,
    _turn: MutexGuard<'static, ()>,
}

/// Calls a function of the table, which must exist. Returns the number of the answer.
#[macro_export]
macro_rules! cu {
    ($machine:expr, $name:ident($($argument:expr),* $(,)?)) => {
        {
            // SAFETY: the arguments are valid for the call, or invalid in a way that the call checks.
            #[allow(unused_unsafe)]
            let answer = unsafe { $machine.driver.$name($($argument),*) };
            answer.unwrap().0
        }
    };
}

/// A command that runs an ignored test of a module of this program.
pub fn in_its_own_process(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = module.split_once("::").map_or_else(|| test.to_owned(), |(_, module)| format!("{module}::{test}"));
    command.args(["--exact", &name, "--ignored", "--nocapture"]);
    command
}

/// A machine before cuInit.
pub fn unstarted(settings: Settings) -> Machine {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    softgpu::shut_down(false);
    softgpu::reset();
    softgpu::configure(settings).unwrap();
    // SAFETY: softgpu's functions have the signatures that cuda-sys states.
    let driver = unsafe { Driver::from_resolver("softgpu", &mut softgpu::cuda_symbol) };
    Machine { driver, _turn: turn }
}

/// A machine with a current primary context of device 0.
pub fn machine(settings: Settings) -> Machine {
    let machine = unstarted(settings);
    assert_eq!(cu!(machine, cuInit(0)), 0);
    let mut context = ptr::null_mut();
    assert_eq!(cu!(machine, cuDevicePrimaryCtxRetain(&mut context, 0)), 0);
    assert_eq!(cu!(machine, cuCtxSetCurrent(context)), 0);
    machine
}

impl Machine {
    /// Releases the context that `machine` retained. Then nothing may be alive.
    pub fn finish(self) {
        assert_eq!(cu!(self, cuCtxSetCurrent(ptr::null_mut())), 0);
        assert_eq!(cu!(self, cuDevicePrimaryCtxRelease_v2(0)), 0);
        assert!(softgpu::ledger().is_empty(), "{}", softgpu::ledger());
    }

    pub fn alloc(&self, size: usize) -> CUdeviceptr {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAlloc_v2(&mut address, size)), 0);
        address
    }

    pub fn host(&self, size: usize) -> &'static mut [u8] {
        let mut address = ptr::null_mut();
        assert_eq!(cu!(self, cuMemAllocHost_v2(&mut address, size)), 0);
        // SAFETY: the memory is fresh and has that size, and the tests free it after its last use.
        unsafe { std::slice::from_raw_parts_mut(address.cast(), size) }
    }

    pub fn stream(&self, flags: u32) -> CUstream {
        let mut stream = ptr::null_mut();
        assert_eq!(cu!(self, cuStreamCreate(&mut stream, flags)), 0);
        stream
    }

    pub fn context(&self, device: i32) -> CUcontext {
        let mut context = ptr::null_mut();
        assert_eq!(cu!(self, cuCtxCreate_v2(&mut context, 0, device)), 0);
        context
    }

    pub fn read(&self, from: CUdeviceptr, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        assert_eq!(cu!(self, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, size)), 0);
        bytes
    }

    pub fn write(&self, to: CUdeviceptr, bytes: &[u8]) {
        assert_eq!(cu!(self, cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len())), 0);
    }

    /// Queues a closure on a stream as a host function.
    pub fn launch(&self, stream: CUstream, run: impl FnOnce() + Send + 'static) {
        unsafe extern "C" fn call(data: *mut c_void) {
            // SAFETY: `launch` made the pointer from such a box, for this one call.
            let run = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
            run();
        }
        let run: Box<dyn FnOnce() + Send> = Box::new(run);
        let data = Box::into_raw(Box::new(run)).cast();
        assert_eq!(cu!(self, cuLaunchHostFunc(stream, Some(call), data)), CUresult::CUDA_SUCCESS.0);
    }
}

/// Runs a test twice: where device addresses are addresses of the process, and where the CPU faults at them.
pub fn both(test: fn(&Machine)) {
    for strict in [false, true] {
        let m = machine(Settings { strict, ..Settings::default() });
        test(&m);
        m.finish();
    }
}

/// An ELF file for a machine, with a kernel and a variable whose initial value is in it.
pub fn cubin(machine: u16, kernel: &[u8]) -> Vec<u8> {
    let names = [b"\0", kernel, b"\0factor\0"].concat();
    let titles = [b"\0.text.", kernel, b"\0.nv.global.init\0.symtab\0.strtab\0.shstrtab\0"].concat();
    let (factor, end) = (kernel.len() as u32 + 2, kernel.len() as u32 + 8);
    let symbol = |name: u32, info: u8, section: u16, size: u64| {
        let mut bytes = name.to_le_bytes().to_vec();
        bytes.extend([info, 0]);
        bytes.extend(section.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes
    };
    let symbols = [symbol(0, 0, 0, 0), symbol(1, 0x12, 1, 16), symbol(factor, 0x11, 2, 4)].concat();
    let contents: [&[u8]; 5] = [&[0; 16], &5_u32.to_le_bytes(), &symbols, &names, &titles];
    let mut bytes = vec![0; 64];
    let mut sections = vec![0; 64];
    for (n, (content, name)) in contents.iter().zip([1, end, end + 16, end + 24, end + 32]).enumerate() {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        // A program, data, symbols with their names, and texts twice.
        let (kind, link, entry) = [(1_u32, 0_u32, 0_u64), (1, 0, 0), (2, 4, 24), (3, 0, 0), (3, 0, 0)][n];
        sections.extend([name, kind].iter().flat_map(|word| word.to_le_bytes()));
        sections
            .extend([0, 0, bytes.len() as u64, content.len() as u64].iter().flat_map(|word: &u64| word.to_le_bytes()));
        sections.extend([link, 1].iter().flat_map(|word| word.to_le_bytes()));
        sections.extend([8, entry].iter().flat_map(|word: &u64| word.to_le_bytes()));
        bytes.extend(*content);
    }
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let place = bytes.len() as u64;
    bytes.extend(sections);
    bytes[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0\x02\0\0\0");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[20] = 1;
    bytes[40..48].copy_from_slice(&place.to_le_bytes());
    for (at, half) in [(52, 64_u16), (58, 64), (60, 6), (62, 5)] {
        bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
    }
    bytes
}
