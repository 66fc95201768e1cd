//! Why an evaluation has no result.

/// What went wrong, in the words that Kubernetes uses.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvalError {
    #[error("no such overload")]
    NoSuchOverload,
    /// The same, of a function that says its name.
    #[error("no such overload: {0}")]
    NoSuchOverloadOf(&'static str),
    #[error("no such key: {0}")]
    NoSuchKey(String),
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    #[error("division by zero")]
    DivisionByZero,
    #[error("modulus by zero")]
    ModulusByZero,
    #[error("integer overflow")]
    IntegerOverflow,
    #[error("unsigned integer overflow")]
    UnsignedOverflow,
    #[error("{0}")]
    Invalid(String),
    /// The budget is used up; nothing absorbs this.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// Variables that use one another would need too much of the stack; nothing absorbs this.
    #[error("variables that use one another nest too deeply")]
    TooDeep,
}

impl EvalError {
    pub fn invalid(message: impl Into<String>) -> Self {
        EvalError::Invalid(message.into())
    }

    /// Whether `&&` and `||` must not hide it.
    pub fn ends_everything(&self) -> bool {
        matches!(self, EvalError::CostLimit | EvalError::TooDeep)
    }
}

/// How much an evaluation may still do, in the units of the cost estimate.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    spent: u64,
}

impl Budget {
    /// What Kubernetes allows one expression.
    pub const PER_CALL: u64 = 1_000_000;
    /// What Kubernetes allows all expressions of one object.
    pub const PER_OBJECT: u64 = 10_000_000;
    /// What Kubernetes allows all match conditions of one webhook or binding.
    pub const MATCH_CONDITIONS: u64 = 2_500_000;

    pub fn new(limit: u64) -> Self {
        Budget { limit, spent: 0 }
    }

    /// The budget of one expression.
    pub fn per_call() -> Self {
        Budget::new(Budget::PER_CALL)
    }

    pub fn spent(&self) -> u64 {
        self.spent
    }

    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit {
            Err(EvalError::CostLimit)
        } else {
            Ok(())
        }
    }
}
