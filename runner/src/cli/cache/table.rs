//! Hit rates at some sizes, policy by policy.

use indicatif::HumanCount;
use morphgl_hotness::coverage;
use morphgl_plan::Time;
use morphgl_tiering::{SECTOR, WarpPattern};
use serde_json::{Value, json};

use super::Ranked;
use crate::cli::show;
use crate::session::hit_rates::lists::{Cached, Lists};
use crate::session::{Counted, Sampled};

/// Caches of feature rows and of adjacency lists.
pub(super) struct Table<'a> {
    sampled: &'a Sampled,
    counted: &'a Counted,
    lists: Option<&'a Lists<'a>>,
    shares: &'a [f64],
    rows: Vec<usize>,
    policies: Vec<Judged<'a>>,
}

/// A policy and its hit rates, by size.
struct Judged<'a> {
    ranked: &'a Ranked,
    hits: Vec<f64>,
    lists: Vec<Cached>,
}

/// What a device reads of feature rows over PCIe, an access, by the model of `morphgl-tiering`.
struct Link {
    requests: f64,
    bytes: f64,
}

impl Link {
    fn of(pattern: WarpPattern, row_bytes: u64) -> Self {
        let (requests, sectors) = pattern.mean(row_bytes);
        Self { requests, bytes: sectors * SECTOR as f64 }
    }

    /// By zero copy, and by the naive access that it is compared with; `None` without features.
    fn both(row_bytes: u64) -> Option<[Self; 2]> {
        let patterns = || [WarpPattern::of_zero_copy(row_bytes), WarpPattern::of_naive(row_bytes)];
        (row_bytes > 0).then(|| patterns().map(|pattern| Self::of(pattern, row_bytes)))
    }

    fn json(&self, accesses: f64) -> Value {
        json!({ "bytes": (self.bytes * accesses).round() as u64, "requests": (self.requests * accesses).round() as u64 })
    }
}

impl<'a> Table<'a> {
    pub(super) fn new(
        sampled: &'a Sampled,
        counted: &'a Counted,
        ranked: &'a [Ranked],
        lists: Option<&'a Lists<'a>>,
        shares: &'a [f64],
    ) -> Self {
        let rows: Vec<usize> = shares.iter().map(|&share| sampled.rows(share)).collect();
        let judged = |ranked: &'a Ranked| Judged {
            ranked,
            hits: coverage(&counted.hotness.features, &ranked.order, &rows),
            lists: lists.map(|l| l.cached(&counted.hotness.rows, &ranked.lists, shares)).unwrap_or_default(),
        };
        let policies = ranked.iter().map(judged).collect();
        Self { sampled, counted, lists, shares, policies, rows }
    }

    /// Accesses of feature rows, and of adjacency lists.
    fn accesses(&self) -> [f64; 2] {
        let hotness = &self.counted.hotness;
        [&hotness.features, &hotness.rows].map(|counts| counts.iter().map(|&count| f64::from(count)).sum())
    }

    pub(super) fn text(&self) -> String {
        let Self { sampled, counted, .. } = self;
        let percent = |rates: &mut dyn Iterator<Item = f64>| -> Vec<String> {
            rates.map(|rate| format!("{:.1}%", 100.0 * rate)).collect()
        };
        let row = |Judged { ranked, hits, .. }: &Judged<'_>| {
            let cost = [format!("{:.3}", ranked.seconds), format!("{:.2}", ranked.seconds / counted.seconds)];
            [vec![ranked.kind.to_string()], percent(&mut hits.iter().copied()), cost.to_vec()].concat()
        };
        let ([accesses, list_accesses], row_bytes) = (self.accesses(), sampled.row_bytes());
        let mut text = format!(
            "{}: {}, {} seeds per mini-batch\n{} accesses per epoch to {} rows of {}: {} without a cache ({}, sampled in {} per epoch)\n",
            sampled.dataset.name,
            sampled.settings.sampling,
            sampled.settings.batch_size,
            HumanCount(accesses as u64),
            HumanCount(sampled.dataset.num_nodes() as u64),
            show::bytes(row_bytes),
            show::bytes((accesses * row_bytes as f64) as u64),
            show::plural(counted.epochs.into(), "epoch"),
            Time(counted.seconds),
        );
        if let Some([zero_copy, naive]) = Link::both(row_bytes) {
            text += &format!(
                "over PCIe: {} in {} requests by zero copy, {} in {} by naive access\n",
                show::bytes((zero_copy.bytes * accesses) as u64),
                HumanCount((zero_copy.requests * accesses) as u64),
                show::bytes((naive.bytes * accesses) as u64),
                HumanCount((naive.requests * accesses) as u64),
            );
        }
        text += &self.table("of rows", &["seconds", "epochs of sampling"], row);
        if let Some(lists) = self.lists {
            text += &format!(
                "{} accesses per epoch to {} adjacency lists of {}\n",
                HumanCount(list_accesses as u64),
                HumanCount(lists.len),
                show::bytes(lists.bytes),
            );
            text += &self.table("of bytes", &[], |Judged { ranked, lists, .. }| {
                [vec![ranked.kind.to_string()], percent(&mut lists.iter().map(|cached| cached.hit_rate))].concat()
            });
        }
        text
    }

    /// One row per policy, one column per share, and `more` columns.
    fn table(&self, of: &str, more: &[&str], row: impl Fn(&Judged<'_>) -> Vec<String>) -> String {
        let shares: Vec<String> = self.shares.iter().map(|share| format!("{share}% {of}")).collect();
        let header = [&["policy"][..], &shares.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat();
        show::table(&header, &self.policies.iter().map(row).collect::<Vec<_>>(), &[0])
    }

    pub(super) fn json(&self) -> Value {
        let Self { sampled, counted, shares, .. } = self;
        let ([accesses, list_accesses], row_bytes) = (self.accesses(), sampled.row_bytes());
        let link = Link::both(row_bytes);
        let policies = self.policies.iter().map(|Judged { ranked, hits, lists }| {
            let sizes = shares.iter().zip(&self.rows).zip(hits).map(|((share, rows), hit)| {
                let missed = accesses * (1.0 - hit);
                let missed_bytes = (missed * row_bytes as f64).round() as u64;
                let cache_bytes = *rows as u64 * row_bytes;
                let link_bytes = link.as_ref().map(|[zero_copy, _]| (missed * zero_copy.bytes).round() as u64);
                json!({
                    "share": share / 100.0, "rows": rows, "cache_bytes": cache_bytes, "hit_rate": hit,
                    "missed_bytes": missed_bytes, "link_bytes": link_bytes.unwrap_or(0),
                })
            });
            let lists = shares.iter().zip(lists).map(|(share, Cached { lists, bytes, hit_rate })| {
                json!({ "share": share / 100.0, "lists": lists, "cache_bytes": bytes, "hit_rate": hit_rate })
            });
            let mut json = json!({
                "policy": ranked.kind.to_string(),
                "seconds": ranked.seconds,
                "epochs_of_sampling": ranked.seconds / counted.seconds,
                "sizes": sizes.collect::<Vec<_>>(),
            });
            if self.lists.is_some() {
                json["lists"] = lists.collect::<Vec<_>>().into();
            }
            json
        });
        let mut json = json!({
            "dataset": sampled.dataset.name,
            "settings": sampled.settings,
            "epochs": counted.epochs,
            "sampling_seconds": counted.seconds,
            "accesses": accesses,
            "row_bytes": row_bytes,
            "policies": policies.collect::<Vec<_>>(),
        });
        if let Some([zero_copy, naive]) = &link {
            json["link"] = json!({ "zero_copy": zero_copy.json(accesses), "naive": naive.json(accesses) });
        }
        if let Some(lists) = self.lists {
            json["lists"] = json!({ "accesses": list_accesses, "lists": lists.len, "bytes": lists.bytes });
        }
        json
    }
}
