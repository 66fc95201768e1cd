//! Sizes and costs between a least and a most.

use std::ops::Add;

/// How large a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeEstimate {
    pub min: u64,
    pub max: u64,
}

/// What an evaluation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    pub min: u64,
    pub max: u64,
}

/// The sizes of what is inside a list or a map.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub list: bool,
    pub key: SizeEstimate,
    pub value: SizeEstimate,
}

impl Entry {
    pub fn union(self, other: Entry) -> Entry {
        Entry {
            list: self.list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

impl SizeEstimate {
    pub const UNKNOWN: SizeEstimate = SizeEstimate { min: 0, max: u64::MAX };

    pub fn fixed(size: u64) -> Self {
        SizeEstimate { min: size, max: size }
    }

    pub fn plus(self, other: SizeEstimate) -> Self {
        SizeEstimate {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub fn multiply(self, other: SizeEstimate) -> Self {
        SizeEstimate {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub fn union(self, other: SizeEstimate) -> Self {
        SizeEstimate {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// The cost of doing something for every element.
    pub fn times(self, cost: CostEstimate) -> CostEstimate {
        CostEstimate {
            min: self.min.saturating_mul(cost.min),
            max: self.max.saturating_mul(cost.max),
        }
    }

    /// The cost of looking at every element.
    pub fn factor(self, per_element: f64) -> CostEstimate {
        CostEstimate {
            min: scaled(self.min, per_element),
            max: scaled(self.max, per_element),
        }
    }
}

impl CostEstimate {
    pub const ZERO: CostEstimate = CostEstimate { min: 0, max: 0 };

    pub fn fixed(cost: u64) -> Self {
        CostEstimate { min: cost, max: cost }
    }

    pub(super) fn multiply(self, other: CostEstimate) -> Self {
        CostEstimate {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn factor(self, factor: f64) -> Self {
        CostEstimate {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    pub(super) fn union(self, other: CostEstimate) -> Self {
        CostEstimate {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

impl Add for CostEstimate {
    type Output = CostEstimate;

    fn add(self, other: CostEstimate) -> CostEstimate {
        CostEstimate {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

/// Rounded up, and never beyond the largest number.
fn scaled(size: u64, factor: f64) -> u64 {
    // The conversion saturates, which is exactly what an estimate needs.
    (size as f64 * factor).ceil() as u64
}
