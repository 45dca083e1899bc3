//! Writes the picture, the trace and the page of a synthetic run into a folder.
//!
//! `cargo run -p morphgl-report --example alone-report -- FOLDER [full|cpu|bare|long|huge]`

use std::error::Error;
use std::fs::{File, create_dir_all, write};
use std::io::BufWriter;
use std::path::PathBuf;

use morphgl_report::{Report, SvgOptions, html, svg, write_trace};

mod synthetic;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("no folder given; pass one to write into")?);
    let report = match arguments.next().as_deref() {
        None | Some("full") => synthetic::full(1179, 3),
        Some("cpu") => synthetic::cpu_only(),
        Some("bare") => {
            Report { title: "A plan and nothing else".into(), predicted_seconds: Some(48.03), ..Report::default() }
        }
        Some("long") => synthetic::full(7000, 1),
        Some("huge") => synthetic::full(40_000, 1),
        Some(other) => return Err(format!("unknown run '{other}'; give full, cpu, bare, long or huge").into()),
    };
    create_dir_all(&folder)?;
    write(folder.join("report.html"), html(&report))?;
    let timelines: Vec<_> = [("predicted", &report.predicted), ("measured", &report.measured)]
        .into_iter()
        .filter_map(|(name, timeline)| Some((name, timeline.as_ref()?)))
        .collect();
    for (name, timeline) in &timelines {
        let options = SvgOptions { title: format!("{}, {name}", report.title), ..SvgOptions::default() };
        write(folder.join(format!("{name}.svg")), svg(timeline, &options))?;
    }
    write_trace(BufWriter::new(File::create(folder.join("trace.json"))?), &timelines)?;
    Ok(())
}
