//! `strongroom stats`
