//! Where our header and a release of NVIDIA's are known to differ, and may: each difference by name, with the reason.
//! One that no release needs any more is an error.

/// A field that only some releases have: what it came out of was reserved before.
#[derive(Debug)]
pub struct Carved {
    /// The record's tag.
    pub record: &'static str,
    /// The field, by its path.
    pub field: &'static str,
    /// Where the space came from.
    pub from: From,
}

/// Where the space of a newer field came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The array of that path, which is shorter on the side that has the field.
    Reserved(&'static str),
    /// It lies over the field of that path, in a union.
    Union(&'static str),
}

/// Fields that only some releases have.
pub const CARVED: [Carved; 5] = [
    // CUDA 12.2 reserves it still.
    Carved { record: "CUmemPoolProps_st", field: "usage", from: From::Reserved("reserved") },
    // CUDA 13.5 brought it; callers who zero what is reserved do not ask for it.
    Carved { record: "CUmemPoolProps_st", field: "gpuDirectRDMACapable", from: From::Reserved("reserved") },
    // CUDA 13.5 reads `id` as two bytes for a kind of place that we do not have.
    Carved { record: "CUmemLocation_st", field: "localized", from: From::Union("id") },
    Carved { record: "CUmemLocation_st", field: "localized.deviceId", from: From::Union("id") },
    Carved { record: "CUmemLocation_st", field: "localized.localityDomainId", from: From::Union("id") },
];
