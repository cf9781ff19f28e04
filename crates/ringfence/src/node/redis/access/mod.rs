//! What our user may do on a server: which rights are needed, which of them it has, and what a server
//! says when one is missing.

pub(crate) mod acl;
pub(crate) mod denial;
pub(crate) mod rights;
