//! `strongroom dump`
