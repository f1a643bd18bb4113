//! The outsider: it measures and attacks the house through its front doors, and never lives in it.

pub mod stub_llm;
