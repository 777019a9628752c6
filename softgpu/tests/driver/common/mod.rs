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
