//! Profiles of copy engines
//!
//! A profile holds the times of copies by which an engine chooses methods. The engine also keeps page-locked staging.

use crate::call::{Out, Outcome, invalid, object, out, run, text};
use crate::handles::cudamem_engine;
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::c_char;
use cuda_mem::copy::MachineProfile;

pub(crate) fn parse(argument: &'static str, json: &str) -> Outcome<MachineProfile> {
    serde_json::from_str(json)
        .map_err(|error| invalid(argument, format!("a text of {} bytes ({error})", json.len()), "it must be a profile"))
}

/// Gets the engine's profile as JSON: how long each method of copying takes, by size.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_get_profile(engine: cudamem_engine, json: Out<'_, cudamem_text>) -> cudamem_status {
    run("cudamem_engine_get_profile", || {
        let json = out("json", json)?;
        let profile = object("engine", engine)?.profile();
        let written = serde_json::to_string(&profile);
        json.write(new_text(
            written.map_err(|error| invalid("engine", error.to_string(), "its profile must be valid as JSON"))?,
        )?);
        Ok(())
    })
}

/// Makes the engine use another profile, a JSON text, from now on. NULL is the typical profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_engine_set_profile(engine: cudamem_engine, json: *const c_char) -> cudamem_status {
    run("cudamem_engine_set_profile", || {
        // SAFETY: the header requires NULL or a zero-terminated string.
        let profile = unsafe { text("json", json) }?.map(|json| parse("json", json)).transpose()?;
        let engine = object("engine", engine)?;
        engine.set_profile(profile.unwrap_or_else(MachineProfile::typical))?;
        Ok(())
    })
}

/// Gets the size of the engine's page-locked staging in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_get_staging(engine: cudamem_engine, size: Out<'_, usize>) -> cudamem_status {
    run("cudamem_engine_get_staging", || {
        let size = out("size", size)?;
        size.write(object("engine", engine)?.reserved_staging());
        Ok(())
    })
}

/// Frees staging that no copy uses.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_engine_trim(engine: cudamem_engine) -> cudamem_status {
    run("cudamem_engine_trim", || {
        object("engine", engine)?.trim();
        Ok(())
    })
}
