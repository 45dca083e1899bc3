//! Hit rates at some sizes, policy by policy.

use indicatif::HumanCount;
use morphgl_hotness::coverage;
use morphgl_plan::Time;
use morphgl_tiering::{SECTOR, WarpPattern};
use serde_json::{Value, json};

use super::{Chosen, Ranked};
use crate::cli::show;
use crate::session::hit_rates::lists::{Cached, Lists};
use crate::session::hit_rates::rows::{CachedOfType, Rows, RowsOfType};
use crate::session::{Counted, Sampled};

/// Caches of feature rows and of adjacency lists.
pub(super) struct Table<'a> {
    sampled: &'a Sampled,
    counted: &'a Counted,
    rows: &'a Rows,
    lists: Option<&'a Lists<'a>>,
    shares: &'a [f64],
    /// Accesses of each type's rows.
    of_types: Vec<f64>,
    policies: Vec<Judged<'a>>,
}

/// A policy and its hit rates, by size.
struct Judged<'a> {
    ranked: &'a Ranked,
    hits: Vec<f64>,
    /// What is cached of each type.
    types: Vec<Vec<CachedOfType>>,
    lists: Vec<Cached>,
}

/// What a device reads of feature rows over PCIe, by the model of `morphgl-tiering`.
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

    fn times(&self, accesses: f64) -> Self {
        Self { requests: self.requests * accesses, bytes: self.bytes * accesses }
    }

    fn json(&self) -> Value {
        json!({ "bytes": self.bytes.round() as u64, "requests": self.requests.round() as u64 })
    }
}

impl<'a> Table<'a> {
    pub(super) fn new(
        (sampled, counted): (&'a Sampled, &'a Counted),
        ranked: &'a [Ranked],
        (rows, lists): (&'a Rows, Option<&'a Lists<'a>>),
        shares: &'a [f64],
    ) -> Self {
        let accesses = rows.accesses(&counted.hotness.features);
        let all: f64 = accesses.iter().map(|&count| f64::from(count)).sum();
        let judged = |ranked: &'a Ranked| match &ranked.by {
            Chosen::First { order, lists: of_lists } => {
                let entries = rows.within(order, shares);
                Judged {
                    ranked,
                    hits: coverage(&accesses, order, &entries),
                    types: entries.iter().map(|&count| rows.cached(&accesses, order, count)).collect(),
                    lists: lists.map(|l| l.cached(&counted.hotness.rows, of_lists, shares)).unwrap_or_default(),
                }
            }
            Chosen::Replayed(hits) => {
                let of_all = |(share, hit): (&f64, &f64)| {
                    vec![CachedOfType { rows: sampled.rows(*share) as u64, hits: hit * all }]
                };
                Judged {
                    ranked,
                    hits: hits.clone(),
                    types: shares.iter().zip(hits).map(of_all).collect(),
                    lists: vec![],
                }
            }
        };
        let of_type = |of_type: &RowsOfType| {
            let nodes = of_type.nodes.start as usize..of_type.nodes.end as usize;
            accesses[nodes].iter().map(|&count| f64::from(count)).sum()
        };
        let (of_types, policies) = (rows.types.iter().map(of_type).collect(), ranked.iter().map(judged).collect());
        Self { sampled, counted, rows, lists, shares, of_types, policies }
    }

    /// Accesses of feature rows, and of adjacency lists.
    fn accesses(&self) -> [f64; 2] {
        let lists = self.counted.hotness.rows.iter().map(|&count| f64::from(count)).sum();
        [self.of_types.iter().sum(), lists]
    }

    /// Bytes of the rows of all accesses.
    fn accessed_bytes(&self) -> f64 {
        let of_types = self.of_types.iter().zip(&self.rows.types);
        of_types.map(|(accesses, of_type)| accesses * of_type.row_bytes as f64).sum()
    }

    /// What a device reads over PCIe for so many accesses of each type's rows, by zero copy and by the naive access; `None` without
    /// features.
    fn link(&self, accesses: impl Iterator<Item = f64>) -> Option<[Link; 2]> {
        let of_types = accesses
            .zip(&self.rows.types)
            .filter_map(|(accesses, of_type)| Some(Link::both(of_type.row_bytes)?.map(|link| link.times(accesses))));
        of_types.reduce(|all, more| {
            let [mut all, more] = [all, more];
            for (sum, link) in all.iter_mut().zip(more) {
                *sum = Link { requests: sum.requests + link.requests, bytes: sum.bytes + link.bytes };
            }
            all
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { sampled, counted, .. } = self;
        let percent = |rates: &mut dyn Iterator<Item = f64>| -> Vec<String> {
            rates.map(|rate| format!("{:.1}%", 100.0 * rate)).collect()
        };
        let row = |Judged { ranked, hits, .. }: &Judged<'_>| {
            let cost = [format!("{:.3}", ranked.seconds), format!("{:.2}", ranked.seconds / counted.seconds)];
            [vec![ranked.policy.to_string()], percent(&mut hits.iter().copied()), cost.to_vec()].concat()
        };
        let ([accesses, list_accesses], (rows, bytes)) = (self.accesses(), self.rows.all());
        let size = match self.rows.row_bytes {
            Some(row_bytes) => show::bytes(row_bytes),
            None => format!("{} node types, {}", self.types().count(), show::bytes(bytes)),
        };
        let mut text = format!(
            "{}: {}, {} seeds per mini-batch\n{} accesses per epoch to {} rows of {size}: {} without a cache ({}, sampled in {} per epoch)\n",
            sampled.dataset.name,
            sampled.settings.sampling,
            sampled.settings.batch_size,
            HumanCount(accesses as u64),
            HumanCount(rows),
            show::bytes(self.accessed_bytes() as u64),
            show::plural(counted.epochs.into(), "epoch"),
            Time(counted.seconds),
        );
        if let Some([zero_copy, naive]) = self.link(self.of_types.iter().copied()) {
            text += &format!(
                "over PCIe: {} in {} requests by zero copy, {} in {} by naive access\n",
                show::bytes(zero_copy.bytes as u64),
                HumanCount(zero_copy.requests as u64),
                show::bytes(naive.bytes as u64),
                HumanCount(naive.requests as u64),
            );
        }
        let of = if self.rows.row_bytes.is_some() { "of rows" } else { "of bytes" };
        text += &self.table(of, &["seconds", "epochs of sampling"], self.policies.iter().map(row));
        if self.rows.types.iter().any(|of_type| of_type.name.is_some()) {
            text += &self.by_type(of);
        }
        if let Some(lists) = self.lists {
            text += &format!(
                "{} accesses per epoch to {} adjacency lists of {}\n",
                HumanCount(list_accesses as u64),
                HumanCount(lists.len),
                show::bytes(lists.bytes),
            );
            let of_static = self.policies.iter().filter(|policy| !policy.lists.is_empty());
            let row = |Judged { ranked, lists, .. }: &Judged<'_>| {
                [vec![ranked.policy.to_string()], percent(&mut lists.iter().map(|cached| cached.hit_rate))].concat()
            };
            text += &self.table("of bytes", &[], of_static.map(row));
        }
        text
    }

    /// The types with rows, and the accesses of each.
    fn types(&self) -> impl Iterator<Item = (usize, &RowsOfType)> {
        let has_rows = |of_type: &RowsOfType| self.rows.row_bytes.is_some() || of_type.row_bytes > 0;
        self.rows.types.iter().enumerate().filter(move |(_, of_type)| has_rows(of_type))
    }

    /// What is cached of each node type: one row per policy and type, one column per share.
    fn by_type(&self, of: &str) -> String {
        let mut table = Vec::new();
        for Judged { ranked, types, .. } in &self.policies {
            for (number, of_type) in self.types() {
                let accesses = self.of_types[number];
                let mut row = vec![
                    ranked.policy.to_string(),
                    of_type.name.clone().unwrap_or_default(),
                    HumanCount(of_type.nodes.len() as u64).to_string(),
                    show::bytes(of_type.row_bytes),
                    HumanCount(accesses as u64).to_string(),
                ];
                row.extend(types.iter().map(|cached| {
                    let CachedOfType { rows, hits } = cached[number];
                    let rate = if accesses > 0.0 { 100.0 * hits / accesses } else { 0.0 };
                    format!("{} rows, {}: {rate:.1}%", HumanCount(rows), show::bytes(rows * of_type.row_bytes))
                }));
                table.push(row);
            }
        }
        let shares: Vec<String> = self.shares.iter().map(|share| format!("{share}% {of}")).collect();
        let columns = ["policy", "node type", "rows", "of", "accesses"];
        let header: Vec<&str> = columns.into_iter().chain(shares.iter().map(String::as_str)).collect();
        show::table(&header, &table, &[0, 1])
    }

    /// One row per policy, one column per share, and `more` columns.
    fn table(&self, of: &str, more: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
        let shares: Vec<String> = self.shares.iter().map(|share| format!("{share}% {of}")).collect();
        let header = [&["policy"][..], &shares.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat();
        show::table(&header, &rows.collect::<Vec<_>>(), &[0])
    }

    pub(super) fn json(&self) -> Value {
        let Self { sampled, counted, shares, .. } = self;
        let [accesses, list_accesses] = self.accesses();
        let is_typed = self.rows.types.iter().any(|of_type| of_type.name.is_some());
        let policies = self.policies.iter().map(|Judged { ranked, hits, types, lists }| {
            let sizes = shares.iter().zip(types).zip(hits).map(|((share, cached), hit)| {
                let missed = || self.of_types.iter().zip(cached).map(|(accesses, cached)| accesses - cached.hits);
                let of_types = || cached.iter().zip(&self.rows.types);
                let missed_bytes: f64 =
                    missed().zip(&self.rows.types).map(|(missed, of_type)| missed * of_type.row_bytes as f64).sum();
                let mut size = json!({
                    "share": share / 100.0,
                    "rows": of_types().map(|(cached, _)| cached.rows).sum::<u64>(),
                    "cache_bytes": of_types().map(|(cached, of_type)| cached.rows * of_type.row_bytes).sum::<u64>(),
                    "hit_rate": hit,
                    "missed_bytes": missed_bytes.round() as u64,
                    "link_bytes": self.link(missed()).map_or(0, |[zero_copy, _]| zero_copy.bytes.round() as u64),
                });
                if is_typed {
                    let of_type = |(number, of_type): (usize, &RowsOfType)| {
                        let (CachedOfType { rows, hits }, accesses) = (cached[number], self.of_types[number]);
                        json!({
                            "type": of_type.name,
                            "rows": rows,
                            "cache_bytes": rows * of_type.row_bytes,
                            "hit_rate": if accesses > 0.0 { hits / accesses } else { 0.0 },
                            "missed_bytes": ((accesses - hits) * of_type.row_bytes as f64).round() as u64,
                        })
                    };
                    size["types"] = self.types().map(of_type).collect::<Vec<_>>().into();
                }
                size
            });
            let lists = shares.iter().zip(lists).map(|(share, Cached { lists, bytes, hit_rate })| {
                json!({ "share": share / 100.0, "lists": lists, "cache_bytes": bytes, "hit_rate": hit_rate })
            });
            let mut json = json!({
                "policy": ranked.policy.to_string(),
                "seconds": ranked.seconds,
                "epochs_of_sampling": ranked.seconds / counted.seconds,
                "sizes": sizes.collect::<Vec<_>>(),
            });
            if self.lists.is_some() && matches!(ranked.by, Chosen::First { .. }) {
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
            "policies": policies.collect::<Vec<_>>(),
        });
        if let Some(row_bytes) = self.rows.row_bytes {
            json["row_bytes"] = row_bytes.into();
        }
        if is_typed {
            let of_type = |(number, of_type): (usize, &RowsOfType)| {
                json!({
                    "type": of_type.name,
                    "rows": of_type.nodes.len(),
                    "row_bytes": of_type.row_bytes,
                    "accesses": self.of_types[number],
                })
            };
            json["types"] = self.types().map(of_type).collect::<Vec<_>>().into();
        }
        if let Some([zero_copy, naive]) = self.link(self.of_types.iter().copied()) {
            json["link"] = json!({ "zero_copy": zero_copy.json(), "naive": naive.json() });
        }
        if let Some(lists) = self.lists {
            json["lists"] = json!({ "accesses": list_accesses, "lists": lists.len, "bytes": lists.bytes });
        }
        json
    }
}
