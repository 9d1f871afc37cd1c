//! GF(2^16): the field, algebraic signatures, Reed-Solomon; pure.
