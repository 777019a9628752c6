//! What a benchmark ran on, and its report.

use crate::cli::BenchRun;
use cuda_mem::{Context, DropError};
use serde::Serialize;

/// The measured device and its driver. Each report has its fields.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) software: bool,
    pub(super) device_name: String,
    pub(super) driver: String,
    pub(super) cuda: Option<String>,
}

impl Machine {
    /// The context's device.
    pub(super) fn of(context: &Context) -> cuda_mem::Result<Self> {
        let cuda = context.driver().provider();
        Ok(Self {
            software: context.driver().is_software(),
            device_name: context.device().name()?,
            driver: cuda.library.to_string(),
            cuda: cuda.version.map(|version| version.to_string()),
        })
    }

    /// One line that names it.
    pub(super) fn headline(&self) -> String {
        let cuda = self.cuda.as_deref().unwrap_or("of an unknown release");
        format!("{}, driver {}, CUDA {cuda}", self.device_name, self.driver)
    }

    #[cfg(test)]
    pub(super) fn of_a_test(device_name: &str, driver: &str, cuda: Option<&str>) -> Self {
        let (device_name, driver) = (device_name.to_owned(), driver.to_owned());
        Self { software: true, device_name, driver, cuda: cuda.map(str::to_owned) }
    }
}

/// Whether all drops of what was measured have succeeded.
pub(super) fn check_drops(context: &Context) -> Result<(), DropError> {
    context.take_drop_errors().errors.into_iter().next().map_or(Ok(()), Err)
}

/// The report in the form that was asked for.
pub(super) fn render<R: Serialize>(
    run: &BenchRun,
    report: &R,
    text: impl FnOnce(&R) -> String,
) -> serde_json::Result<String> {
    if run.json { Ok(serde_json::to_string_pretty(report)? + "\n") } else { Ok(text(report)) }
}
