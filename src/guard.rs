//! Adaptors that find mistakes
//!
//! Adaptors for tests and debugging. One makes allocations fail; one detects writes outside of blocks.

use crate::call::{self, Options, Out, Outcome, invalid, list, object, options, out, run};
use crate::handles::cudamem_resource;
use crate::made::{new_resource, of_type};
use crate::status::cudamem_status;
use core::mem::size_of;
use cuda_mem::adaptor::{FailWhen, FailureInjection, GuardOptions, Guarded};
use cuda_mem::memory::kind::Any;

/// Fails the allocation with this number, counted from 1.
pub const CUDAMEM_FAIL_NTH: i32 = 0;
/// Fails each allocation whose count is a multiple of number.
pub const CUDAMEM_FAIL_EVERY_NTH: i32 = 1;
/// Fails allocations of more than number bytes.
pub const CUDAMEM_FAIL_LARGER_THAN: i32 = 2;
/// Fails each allocation with a probability. number is the seed of the random choice.
pub const CUDAMEM_FAIL_BY_CHANCE: i32 = 3;

/// A rule for which allocations fail.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_failure_rule {
    /// One of CUDAMEM_FAIL_... .
    pub when: i32,
    /// Must be 0.
    pub reserved: i32,
    /// The number that CUDAMEM_FAIL_... describes.
    pub number: u64,
    /// From 0 to 1 with CUDAMEM_FAIL_BY_CHANCE; otherwise 0.
    pub probability: f64,
}

/// # Safety
///
/// `rules` is NULL or points to `count` rules.
unsafe fn failure_rules(rules: *const cudamem_failure_rule, count: usize) -> Outcome<Vec<FailWhen>> {
    // SAFETY: this function's contract.
    let rules = unsafe { list("rules", rules, count) }?;
    let rule = |rule: &cudamem_failure_rule| {
        let number = rule.number;
        if rule.reserved != 0 || !(0.0..=1.0).contains(&rule.probability) {
            let value = format!("reserved {}, probability {}", rule.reserved, rule.probability);
            return Err(invalid("rules", value, "reserved must be 0, and probability from 0 to 1"));
        }
        Ok(match rule.when {
            CUDAMEM_FAIL_NTH => FailWhen::Nth(number),
            CUDAMEM_FAIL_EVERY_NTH => FailWhen::EveryNth(number),
            CUDAMEM_FAIL_LARGER_THAN => FailWhen::LargerThan(usize::try_from(number).unwrap_or(usize::MAX)),
            CUDAMEM_FAIL_BY_CHANCE => FailWhen::Chance { probability: rule.probability, seed: number },
            other => return Err(invalid("rules", format!("when {other}"), "it must be one of CUDAMEM_FAIL_...")),
        })
    };
    rules.iter().map(rule).collect()
}

/// Makes an adaptor that fails allocations by count rules, with CUDAMEM_ERROR_OUT_OF_MEMORY, for tests. The same rules
/// fail the same allocations in every run. A failed allocation does not reach the upstream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_create_failing(
    upstream: cudamem_resource,
    rules: *const cudamem_failure_rule,
    count: usize,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_failing", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header requires `count` valid entries.
        let rules = unsafe { failure_rules(rules, count) }?;
        resource.write(new_resource(FailureInjection::new(&object("upstream", upstream)?.share(), rules))?);
        Ok(())
    })
}

/// Replaces the rules of cudamem_resource_create_failing, and restarts its count of allocations at 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_set_failures(
    resource: cudamem_resource,
    rules: *const cudamem_failure_rule,
    count: usize,
) -> cudamem_status {
    run("cudamem_resource_set_failures", || {
        // SAFETY: the header requires `count` valid entries.
        let rules = unsafe { failure_rules(rules, count) }?;
        of_type::<FailureInjection<Any>>("resource", resource)?.set_rules(rules);
        Ok(())
    })
}

/// How blocks are guarded. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_guard_options {
    /// sizeof(cudamem_guard_options).
    pub size: usize,
    /// The size of the zones before and after each block, in bytes. 256 by default.
    pub red_zone: usize,
    /// How much freed memory the quarantine holds back, in bytes. 16 MiB by default.
    pub quarantine: usize,
    /// CUDAMEM_GUARD_... combined by |.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: three sizes and two numbers of 4 bytes.
unsafe impl Options for cudamem_guard_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// A flag of cudamem_guard_options: no red zones.
pub const CUDAMEM_GUARD_NO_RED_ZONES: u32 = 1;
/// A flag of cudamem_guard_options: no quarantine.
pub const CUDAMEM_GUARD_NO_QUARANTINE: u32 = 2;

/// Makes an adaptor that detects writes outside of blocks and after their free, for debugging: red zones around blocks,
/// poison in new and freed blocks, and a quarantine of freed blocks. A free that finds damage fails with
/// CUDAMEM_ERROR_DAMAGED; a second free of the same block succeeds. options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_create_guarded(
    upstream: cudamem_resource,
    options: *const cudamem_guard_options,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_guarded", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        let known = CUDAMEM_GUARD_NO_RED_ZONES | CUDAMEM_GUARD_NO_QUARANTINE;
        call::check_flags("options.flags", chosen.flags, known)?;
        call::check_flags("options.reserved", chosen.reserved, 0)?;
        let mut settings = GuardOptions::default();
        for (size, none, place) in [
            (chosen.red_zone, CUDAMEM_GUARD_NO_RED_ZONES, &mut settings.red_zone),
            (chosen.quarantine, CUDAMEM_GUARD_NO_QUARANTINE, &mut settings.quarantine),
        ] {
            match size {
                _ if chosen.flags & none != 0 => *place = 0,
                0 => {}
                size => *place = size,
            }
        }
        resource.write(new_resource(Guarded::new(&object("upstream", upstream)?.share(), &settings)?)?);
        Ok(())
    })
}
