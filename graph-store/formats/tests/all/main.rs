//! Imports of every format: of small files beside what they hold, of real data sets, of broken files.

mod arbitrary;
mod columnar;
mod corpus;
#[path = "../data/mod.rs"]
mod data;
mod differential;
mod edge_features;
mod ingest;
mod labelled_edges;
mod links;
mod nodes;
mod npz;
mod numpy;
mod ogb;
mod planetoid;
mod support;
mod text_formats;
mod typed;
