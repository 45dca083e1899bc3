//! Laws of plans, bounds and the simulator; plans beside the optimum of brute force; the tables of the paper.

mod apart;
mod brute_force;
mod caches;
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod cores;
mod group;
mod laws;
mod layer_split;
mod layer_split_choice;
mod memory;
mod overlap;
mod paces;
mod paper_tables;
mod random_groups;
mod random_sets;
mod refused;
mod replan;
mod replay_model;
mod replays;
mod roles;
mod three_routes;
mod what_if;
