//! One window of a timeline: rows, blocks, marks, axis.

use morphgl_plan::Time;

use crate::legend::{pattern, pattern_of};
use crate::markup::{escape, fit, put, px, text_width};
use crate::number::{percent, time_ticks};
use crate::rows::{Block, TimelineRows, density};
use crate::timeline::{Timeline, Work};

/// Widths and heights of a drawing, in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Width of the row labels.
    pub(crate) names: f64,
    /// Left end of the rows.
    pub(crate) left: f64,
    /// Right end of the rows.
    pub(crate) right: f64,
    /// Height of a row.
    pub(crate) row: f64,
}

/// A window of time and where to draw it.
#[derive(Debug, Clone)]
pub(crate) struct Panel<'a> {
    pub(crate) timeline: &'a Timeline,
    pub(crate) rows: &'a TimelineRows,
    pub(crate) id: &'a str,
    pub(crate) caption: String,
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) frame: Frame,
}

/// Width of a column of the density drawing, in pixels.
const COLUMN: f64 = 2.0;
/// Minimum width of a legible block, in pixels. A lane is drawn as density when a third of its blocks are narrower.
const LEGIBLE: f64 = 2.5;

impl Panel<'_> {
    /// Draws the panel at `top` and returns its height.
    pub(crate) fn draw(&self, out: &mut String, top: f64) -> f64 {
        let Frame { names, left, right, row } = self.frame;
        let (x, end, width, share_end) = (px(left), px(right), px(right - left), px(right + 46.0));
        let Self { from, to, .. } = *self;
        put!(out, r#"<g class="panel" data-left="{x}" data-right="{end}" data-from="{from}" data-to="{to}">"#);
        let baseline = px(top + 12.0);
        put!(out, r#"<text class="caption" x="{x}" y="{baseline}">{}</text>"#, escape(&self.caption));
        put!(out, r#"<text class="quiet end" x="{share_end}" y="{baseline}">busy</text>"#);
        let mut y = top + 20.0;
        y += if self.names(out, y + 9.0) { 16.0 } else { 0.0 };
        let first = y;
        let mut body = String::new();
        for (i, (lane, blocks)) in self.timeline.lanes.iter().zip(&self.rows.lanes).enumerate() {
            if i > 0 {
                y += if self.timeline.lanes[i - 1].resource == lane.resource { 2.0 } else { 6.0 };
            }
            put!(body, r#"<rect class="track" x="{x}" y="{}" width="{width}" height="{}"/>"#, px(y), px(row));
            let class = if lane.simulated { "simulated" } else { "lane" };
            let name = fit(&lane.name, 12.0, names);
            let baseline = px(y + row / 2.0 + 4.0);
            put!(body, r#"<text class="{class} end" x="{}" y="{baseline}">{}</text>"#, px(left - 10.0), escape(&name));
            self.lane(&mut body, blocks, y);
            let share = percent(self.rows.utilisation(blocks, self.from, self.to), 0);
            put!(body, r#"<text class="quiet end" x="{share_end}" y="{baseline}">{share}</text>"#);
            y += row;
        }
        self.axis(out, first, y);
        out.push_str(&body);
        self.bands(out, first - 4.0, y);
        out.push_str("</g>");
        y + 22.0 - top
    }

    /// The horizontal position of a time.
    fn x(&self, time: f64) -> f64 {
        let share = ((time - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.frame.left + share * self.width()
    }

    fn axis(&self, out: &mut String, top: f64, bottom: f64) {
        let max = (self.width() / 90.0).floor().clamp(2.0, 12.0);
        for (time, label) in time_ticks(self.from, self.to, max as usize) {
            let x = px(self.x(time));
            put!(out, r#"<path class="grid" d="M{x} {}V{}"/>"#, px(top - 2.0), px(bottom + 4.0));
            put!(out, r#"<text class="quiet mid" x="{x}" y="{}">{label}</text>"#, px(bottom + 16.0));
        }
    }

    /// The visible marks, with their horizontal ends.
    fn visible(&self) -> impl Iterator<Item = (&str, f64, f64)> {
        let marks = self.rows.marks.iter().filter(|m| m.end >= self.from && m.start < self.to);
        marks.map(|m| (m.name.as_str(), self.x(m.start), self.x(m.end)))
    }

    /// Draws labels of marks without overlap: first those that fit above their band, then the others. Returns whether any mark is
    /// visible.
    fn names(&self, out: &mut String, y: f64) -> bool {
        let mut taken: Vec<(f64, f64)> = Vec::new();
        for first in [true, false] {
            for (name, x, end) in self.visible() {
                let width = text_width(name, 11.0);
                let fits = end - x < 1.0 || end - x >= width;
                let free = taken.iter().all(|t| x + width + 8.0 <= t.0 || x >= t.1 + 8.0);
                if fits == first && free && x + width <= self.frame.right + 46.0 {
                    put!(out, r#"<text class="quiet" x="{}" y="{}">{}</text>"#, px(x), px(y), escape(name));
                    taken.push((x, x + width));
                }
            }
        }
        self.visible().next().is_some()
    }

    /// Draws marks as bands, instants as lines.
    fn bands(&self, out: &mut String, top: f64, bottom: f64) {
        let mut last = f64::NEG_INFINITY;
        for (_, x, end) in self.visible() {
            let (left, width, y, height) = (px(x), px(end - x), px(top), px(bottom - top));
            if width >= 1.0 {
                put!(out, r#"<rect class="mark" x="{left}" y="{y}" width="{width}" height="{height}"/>"#);
            } else if x >= last + 3.0 {
                put!(out, r#"<path class="instant" d="M{left} {y}v{height}"/>"#);
                last = x;
            }
        }
    }

    fn width(&self) -> f64 {
        self.frame.right - self.frame.left
    }

    fn lane(&self, out: &mut String, blocks: &[Block], y: f64) {
        let shown: Vec<&Block> = blocks.iter().filter(|b| b.end >= self.from && b.start < self.to).collect();
        let scale = self.width() / (self.to - self.from);
        let narrow = shown.iter().filter(|b| (b.end - b.start) * scale < LEGIBLE).count();
        if narrow * 3 > shown.len() && shown.len() > 24 || shown.len() > self.width() as usize {
            self.density(out, &shown, y);
        } else {
            self.blocks(out, &shown, y);
        }
    }

    /// Draws blocks one by one, in layers: colours, route patterns (one path each), numbers.
    fn blocks(&self, out: &mut String, blocks: &[&Block], y: f64) {
        let mut numbers = String::new();
        let mut patterns: [String; 4] = Default::default();
        let routes = self.timeline.routes.len();
        for block in blocks {
            let (x, width) = self.place(block);
            self.block(out, block, x, width, y);
            self.number(&mut numbers, block, x, width, y);
            let (x, width, height) = (px(x), px(width), px(self.frame.row));
            put!(patterns[pattern_of(block.route, routes)], "M{x} {}h{width}v{height}h-{width}z", px(y));
        }
        for (route, path) in patterns.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            if let Some(fill) = pattern(self.id, route, routes) {
                put!(out, r#"<path class="over" {fill} d="{path}"/>"#);
            }
        }
        out.push_str(&numbers);
    }

    /// A block's left end and width, with a gap to the next block.
    fn place(&self, block: &Block) -> (f64, f64) {
        let x = self.x(block.start).min(self.frame.right - 0.6);
        let width = (self.x(block.end) - x).max(0.6);
        (x, if width > 4.0 { width - 0.7 } else { width })
    }

    fn block(&self, out: &mut String, block: &Block, x: f64, width: f64, y: f64) {
        let Block { work, route, epoch, batch, start, end } = *block;
        let (letter, left, top, wide, high) = (work.letter(), px(x), px(y), px(width), px(self.frame.row));
        put!(out, r#"<rect class="k {letter}" x="{left}" y="{top}" width="{wide}" height="{high}""#);
        if width < 3.0 {
            out.push_str("/>");
            return;
        }
        let route = self.timeline.routes.get(route).map_or_else(String::new, |name| format!(", {}", escape(name)));
        let (took, start) = (Time(end - start), Time(start));
        put!(out, "><title>{work} of mini-batch {batch}, epoch {epoch}{route}: {took} from {start}</title></rect>");
    }

    fn number(&self, out: &mut String, block: &Block, x: f64, width: f64, y: f64) {
        let letter = block.work.letter();
        let long = format!("{letter}{}", block.batch);
        let label = [long.as_str(), &long[1..]].into_iter().find(|l| text_width(l, 10.5) + 5.0 <= width);
        if let Some(label) = label.filter(|_| self.frame.row >= 15.0) {
            let (x, y) = (px(x + width / 2.0), px(y + self.frame.row / 2.0 + 3.7));
            put!(out, r#"<text class="n n{letter}" x="{x}" y="{y}">{label}</text>"#);
        }
    }

    /// Draws density: for each column, stacked bars of the share of its time that each kind of work takes, 1 at most.
    fn density(&self, out: &mut String, blocks: &[&Block], y: f64) {
        let count = ((self.width() / COLUMN) as usize).max(1);
        let mut columns = density(blocks.iter().copied(), self.from, self.to, count);
        for column in &mut columns {
            let sum = column.iter().sum::<f64>().max(1.0);
            column.iter_mut().for_each(|share| *share /= sum);
        }
        let bottom = y + self.frame.row;
        let width = self.width() / count as f64;
        // Back to front: all kinds, then fewer, each from the row's bottom.
        for kinds in (1..=Work::ALL.len()).rev() {
            let heights =
                columns.iter().map(|c| (c[..kinds].iter().sum::<f64>() * self.frame.row * 10.0).round() / 10.0);
            let (mut path, mut height) = (String::new(), 0.0);
            for (i, next) in heights.chain([0.0]).enumerate() {
                if next == height {
                    continue;
                }
                let x = px(self.frame.left + i as f64 * width);
                if height == 0.0 {
                    put!(path, "M{x} {}V{}", px(bottom), px(bottom - next));
                } else {
                    put!(path, "H{x}V{}", px(bottom - next));
                }
                height = next;
            }
            let work = Work::ALL[kinds - 1];
            if !path.is_empty() && blocks.iter().any(|b| b.work == work) {
                put!(out, r#"<path class="k {}" d="{path}Z"/>"#, work.letter());
            }
        }
    }
}
