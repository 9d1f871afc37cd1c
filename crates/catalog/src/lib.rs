//! Snapshots, trees and recipes, over a chunk-store trait only.
