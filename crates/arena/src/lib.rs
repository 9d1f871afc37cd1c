//! The log of arenas: envelope with parity, blocks, summary; writer, reader, scan, seal.
