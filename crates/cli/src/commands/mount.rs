//! `strongroom mount`
