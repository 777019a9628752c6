//! Array interfaces as JSON.

use super::{ArrayInterface, ArrayInterfaceError};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// Whether a field has any value.
pub(super) fn is_there<'json, D: Deserializer<'json>>(field: D) -> Result<bool, D::Error> {
    Option::<IgnoredAny>::deserialize(field).map(|value| value.is_some())
}

impl ArrayInterface {
    /// Reads Python's dictionary as JSON, with arrays instead of tuples.
    ///
    /// # Errors
    ///
    /// The text is not such a dictionary.
    pub fn from_json(json: &str) -> Result<Self, ArrayInterfaceError> {
        serde_json::from_str(json).map_err(|error| ArrayInterfaceError::Json { message: error.to_string().into() })
    }

    /// The dictionary as JSON.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }
}
