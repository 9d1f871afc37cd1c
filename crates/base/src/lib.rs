//! Ids, units, keys, clock, monitor: what every floor may use.
