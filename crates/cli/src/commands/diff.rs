//! `strongroom diff`
