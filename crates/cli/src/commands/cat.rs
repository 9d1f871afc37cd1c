//! `strongroom cat`
