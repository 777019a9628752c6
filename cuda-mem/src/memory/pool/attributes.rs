//! The state and the settings of a pool.

use super::{DriverPool, DriverPoolOptions};
use crate::Result;
use crate::error::call;
use crate::memory::resource::Kind;
use core::ptr;
use cuda_sys::CUmemPool_attribute as Attribute;

/// The sizes of a pool, in bytes, and its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolAttributes {
    /// The memory that the pool has taken from the system.
    pub reserved: usize,
    /// The maximum of `reserved` since its high mark was reset.
    pub reserved_high: usize,
    /// The allocated memory.
    pub used: usize,
    /// The maximum of `used` since its high mark was reset.
    pub used_high: usize,
    /// How much unused memory the pool keeps ([`DriverPoolOptions::release_threshold`]).
    pub release_threshold: usize,
    /// See [`DriverPoolOptions::reuse_follow_event_dependencies`].
    pub reuse_follow_event_dependencies: bool,
    /// See [`DriverPoolOptions::reuse_allow_opportunistic`].
    pub reuse_allow_opportunistic: bool,
    /// See [`DriverPoolOptions::reuse_allow_internal_dependencies`].
    pub reuse_allow_internal_dependencies: bool,
}

impl<K: Kind> DriverPool<K> {
    /// The sizes and the settings of the pool.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemPoolGetAttribute")]
    pub fn attributes(&self) -> Result<PoolAttributes> {
        Ok(PoolAttributes {
            reserved: self.size(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high: self.size(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used: self.size(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_high: self.size(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
            release_threshold: self.size(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)?,
            reuse_follow_event_dependencies: self.flag(Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)?,
            reuse_allow_opportunistic: self.flag(Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)?,
            reuse_allow_internal_dependencies: self
                .flag(Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)?,
        })
    }

    /// Sets how much unused memory the pool keeps, in bytes.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn set_release_threshold(&self, bytes: usize) -> Result<()> {
        self.set_size(Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
    }

    /// Sets [`DriverPoolOptions::reuse_follow_event_dependencies`].
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn set_reuse_follow_event_dependencies(&self, allowed: bool) -> Result<()> {
        self.set_flag(Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, allowed)
    }

    /// Sets [`DriverPoolOptions::reuse_allow_opportunistic`].
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn set_reuse_allow_opportunistic(&self, allowed: bool) -> Result<()> {
        self.set_flag(Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, allowed)
    }

    /// Sets [`DriverPoolOptions::reuse_allow_internal_dependencies`].
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn set_reuse_allow_internal_dependencies(&self, allowed: bool) -> Result<()> {
        self.set_flag(Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, allowed)
    }

    /// Resets both high marks to the memory reserved and used now.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn reset_high_marks(&self) -> Result<()> {
        self.set_size(Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)?;
        self.set_size(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)
    }

    /// Returns unused memory to the system until the pool keeps at most `bytes`. Memory counts as used until its free
    /// is done. The driver works in its own units (32 MiB have been observed).
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias = "cuMemPoolTrimTo")]
    pub fn trim_to(&self, bytes: usize) -> Result<()> {
        self.inner.check_own("DriverPool::trim_to")?;
        let (cuda, _current) = (self.inner.context.driver().raw(), self.inner.context.bind()?);
        // SAFETY: the pool lives.
        unsafe { call!(cuda.cuMemPoolTrimTo(self.inner.raw, bytes)) }
    }

    pub(super) fn apply(&self, options: &DriverPoolOptions) -> Result<()> {
        self.set_release_threshold(options.release_threshold)?;
        self.set_reuse_follow_event_dependencies(options.reuse_follow_event_dependencies)?;
        self.set_reuse_allow_opportunistic(options.reuse_allow_opportunistic)?;
        self.set_reuse_allow_internal_dependencies(options.reuse_allow_internal_dependencies)?;
        options.accessible_from.iter().try_for_each(|device| self.allow_access(device))
    }

    fn size(&self, attribute: Attribute) -> Result<usize> {
        self.inner.check_own("DriverPool::attributes")?;
        let cuda = self.inner.context.driver().raw();
        let mut value: u64 = 0;
        // SAFETY: the attributes of sizes are 64 bits wide, and `value` is writable.
        unsafe { call!(cuda.cuMemPoolGetAttribute(self.inner.raw, attribute, ptr::from_mut(&mut value).cast())) }?;
        Ok(usize::try_from(value).unwrap_or(usize::MAX))
    }

    fn set_size(&self, attribute: Attribute, value: usize) -> Result<()> {
        self.inner.check_own("setting an attribute of a pool")?;
        let cuda = self.inner.context.driver().raw();
        let mut value = value as u64;
        // SAFETY: the attributes of sizes are 64 bits wide, and `value` is readable.
        unsafe { call!(cuda.cuMemPoolSetAttribute(self.inner.raw, attribute, ptr::from_mut(&mut value).cast())) }
    }

    fn flag(&self, attribute: Attribute) -> Result<bool> {
        let cuda = self.inner.context.driver().raw();
        let mut value: i32 = 0;
        // SAFETY: the attributes of policies are an int, and `value` is writable.
        unsafe { call!(cuda.cuMemPoolGetAttribute(self.inner.raw, attribute, ptr::from_mut(&mut value).cast())) }?;
        Ok(value != 0)
    }

    fn set_flag(&self, attribute: Attribute, value: bool) -> Result<()> {
        self.inner.check_own("setting an attribute of a pool")?;
        let cuda = self.inner.context.driver().raw();
        let mut value = i32::from(value);
        // SAFETY: the attributes of policies are an int, and `value` is readable.
        unsafe { call!(cuda.cuMemPoolSetAttribute(self.inner.raw, attribute, ptr::from_mut(&mut value).cast())) }
    }
}
