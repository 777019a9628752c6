//! The known and allowed differences between our header and NVIDIA's releases: each by name, with the reason. An entry
//! that no release needs any more is an error.

/// A field that only some releases have. Its space was reserved in the other releases.
#[derive(Debug)]
pub struct Carved {
    /// The record's tag.
    pub record: &'static str,
    /// The field's path.
    pub field: &'static str,
    /// The source of its space.
    pub from: From,
}

/// The source of a newer field's space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The array with this path, which is shorter on the side that has the field.
    Reserved(&'static str),
    /// The field overlaps the field with this path, in a union.
    Union(&'static str),
}

/// Fields that only some releases have.
pub const CARVED: [Carved; 5] = [
    // CUDA 12.2 still reserves it.
    Carved { record: "CUmemPoolProps_st", field: "usage", from: From::Reserved("reserved") },
    // CUDA 13.5 introduced it. Callers that zero the reserved bytes do not request it.
    Carved { record: "CUmemPoolProps_st", field: "gpuDirectRDMACapable", from: From::Reserved("reserved") },
    // CUDA 13.5 reads `id` as two bytes for a location kind that our header does not have.
    Carved { record: "CUmemLocation_st", field: "localized", from: From::Union("id") },
    Carved { record: "CUmemLocation_st", field: "localized.deviceId", from: From::Union("id") },
    Carved { record: "CUmemLocation_st", field: "localized.localityDomainId", from: From::Union("id") },
];
