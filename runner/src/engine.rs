//! All-reduce of gradients over the trainers of one process.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use morphgl_group::{AbortHandle, Exchange, HostExchange};
use morphgl_plan::Time;
use morphgl_profile::Statistics;
use morphgl_registry::{Key, Place};
use serde::{Deserialize, Serialize};

/// How often an all-reduce is measured.
const ALL_REDUCES: usize = 5;

/// Transport of a group's all-reduces. The sums have the same bits by each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExchangeKind {
    /// NCCL, where all trainers are on CUDA devices, it is found, and it is measured to be faster; else host memory.
    #[default]
    Auto,
    /// Host memory.
    Host,
    /// NCCL.
    Nccl,
}

/// The ends of a group's exchange, by rank.
pub(crate) struct Ends {
    pub(crate) exchanges: Vec<Box<dyn Exchange>>,
    pub(crate) abort_handles: Vec<AbortHandle>,
    /// The engine and why it was chosen, for the user.
    pub(crate) how: String,
}

impl Ends {
    /// The ends of these trainers; `num_values` counts the values of an all-reduce, and none takes longer than `limit`.
    ///
    /// # Errors
    ///
    /// NCCL was asked for, and does not serve.
    pub(crate) fn new(
        engine: ExchangeKind,
        trainers: &[(Key, Place)],
        num_values: usize,
        limit: Duration,
    ) -> Result<Self> {
        let host = || HostExchange::group(trainers.len(), limit);
        let over_host = |why: String| {
            let (ends, how) = (host(), format!("added over host memory{why}"));
            let abort_handles = ends.iter().map(HostExchange::abort_handle).collect();
            Ok(Self { exchanges: ends.into_iter().map(|end| Box::new(end) as _).collect(), abort_handles, how })
        };
        match engine {
            ExchangeKind::Host => over_host(String::new()),
            ExchangeKind::Nccl => match nccl::ends(host(), trainers, limit) {
                Ok((ends, _)) => Ok(ends),
                Err(why) => bail!("--exchange nccl: {why}; --exchange host does without"),
            },
            ExchangeKind::Auto => {
                if let Some(why) = nccl::obstacle(trainers) {
                    return over_host(format!(": {why}"));
                }
                let tried = nccl::ends(host(), trainers, limit).and_then(|(mut ends, version)| {
                    let of_nccl = all_reduce_seconds(ends.exchanges.iter_mut().map(|end| &mut **end), num_values)?;
                    Ok((ends, version, of_nccl))
                });
                let (ends, version, of_nccl) = match tried {
                    Ok(tried) => tried,
                    Err(why) => return over_host(format!(": {why}")),
                };
                let of_host = all_reduce_seconds(host().iter_mut(), num_values)?;
                let times = (Time(of_host), Time(of_nccl));
                if of_host <= of_nccl {
                    return over_host(format!(" in {} per step; NCCL {version} takes {}", times.0, times.1));
                }
                let how = format!("added by NCCL {version} in {} per step; host memory takes {}", times.1, times.0);
                Ok(Self { how, ..ends })
            }
        }
    }
}

/// Median seconds of an all-reduce of `num_values` values at the slowest of the ends, with values that come from host
/// memory and go back there.
///
/// # Errors
///
/// An end fails.
pub(crate) fn all_reduce_seconds<'a, E: Exchange + ?Sized + 'a>(
    ends: impl Iterator<Item = &'a mut E>,
    num_values: usize,
) -> morphgl_group::Result<f64> {
    let add = |end: &mut E| -> morphgl_group::Result<f64> {
        let mut values = vec![0.0; num_values];
        let mut seconds = Vec::new();
        for _ in 0..ALL_REDUCES {
            let start = Instant::now();
            end.all_reduce(&mut values)?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(Statistics::of(seconds).median)
    };
    let added: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = ends.map(|end| scope.spawn(|| add(end))).collect();
        running.into_iter().map(|thread| thread.join().expect("an all-reduce does not panic")).collect()
    });
    Ok(added.into_iter().collect::<morphgl_group::Result<Vec<f64>>>()?.into_iter().fold(0.0, f64::max))
}

#[cfg(feature = "cuda")]
mod nccl {
    use std::time::Duration;

    use anyhow::Result;
    use morphgl_group::HostExchange;
    use morphgl_group_nccl::NcclExchange;
    use morphgl_registry::{Key, Place};

    use super::Ends;

    /// Why NCCL cannot serve these trainers; `None` where it may.
    pub(super) fn obstacle(trainers: &[(Key, Place)]) -> Option<String> {
        let other = trainers.iter().find(|(_, place)| !NcclExchange::serves(place))?;
        Some(format!("NCCL serves CUDA devices alone, and a trainer is at {}", other.1))
    }

    /// Ends by NCCL, and its version.
    pub(super) fn ends(ends: Vec<HostExchange>, trainers: &[(Key, Place)], limit: Duration) -> Result<(Ends, String)> {
        let abort_handles = ends.iter().map(HostExchange::abort_handle).collect();
        let ends = NcclExchange::group(ends, trainers, limit)?;
        let version = ends.first().map_or("", NcclExchange::version).to_string();
        let exchanges = ends.into_iter().map(|end| Box::new(end) as _).collect();
        Ok((Ends { exchanges, abort_handles, how: format!("added by NCCL {version}") }, version))
    }
}

#[cfg(not(feature = "cuda"))]
mod nccl {
    use std::time::Duration;

    use anyhow::{Result, bail};
    use morphgl_group::HostExchange;
    use morphgl_registry::{Key, Place};

    use super::Ends;

    const ABSENT: &str = "this program is built without feature cuda, which NCCL is a part of";

    pub(super) fn obstacle(_: &[(Key, Place)]) -> Option<String> {
        Some(ABSENT.to_string())
    }

    pub(super) fn ends(_: Vec<HostExchange>, _: &[(Key, Place)], _: Duration) -> Result<(Ends, String)> {
        bail!("{ABSENT}")
    }
}
