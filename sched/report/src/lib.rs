#![doc = include_str!("../README.md")]

mod bars;
mod chart;
mod confusion;
mod data;
mod legend;
mod markup;
mod number;
mod page;
mod panel;
mod report;
mod rows;
mod sections;
mod svg;
mod table;
mod timeline;
mod trace;

pub use chart::{LineChart, Scale, Series, line_chart, line_chart_svg};
pub use confusion::ConfusionMatrix;
pub use morphgl_plan::Phase;
pub use page::{html, with_hit_rates};
pub use report::{
    Baseline, Cache, Counted, Epoch, Memory, MemoryUse, OperatorSeconds, Report, Stale, Trainer, TrainingCandidate,
    Utilisation, WhatIf,
};
pub use svg::{SvgOptions, svg};
pub use timeline::{Bar, Lane, Mark, Timeline, Work};
pub use trace::{trace, write_trace};
