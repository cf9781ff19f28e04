//! The rights of our user on a server: which rights are needed, which of them it has, and what a
//! server reports when one is missing.

pub(crate) mod acl;
pub(crate) mod denial;
pub(crate) mod rights;
