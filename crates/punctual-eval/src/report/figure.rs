//! The figures of an experiment: from cells to plots.

use std::fmt::Write as _;

use super::{
    cast::{Cast, Sample},
    plot::{
        Look, Point, Series, Size, XAxis, YAxis,
        bars::Bars,
        ccdf::{Ccdf, Curve, Extent},
        lines::Lines,
        scale::number,
        strips::{Strip, Strips},
    },
    select::{Panel, Selection, value, values},
    table,
    words::{Measure, measure, with_unit},
};
use crate::{
    results::{Cell, Figure, FigureKind, Results},
    svg::escape,
};

/// Courses are drawn with at most this many points each.
const MOST_BINS: usize = 240;

/// Results with what all figures need of them.
pub(super) struct Scene<'a> {
    pub(super) results: &'a Results,
    pub(super) cast: &'a Cast,
}

/// Panels as drawings with their titles, and what else a figure needs.
struct Drawn {
    panels: Vec<(String, String)>,
    size: Size,
    bound: bool,
    /// What the legend shows of each contender; none if every mark is named where it is.
    sample: Option<Sample>,
    notes: Vec<String>,
}

impl<'a> Scene<'a> {
    /// A figure as a section of the page; `n` is its number.
    pub(super) fn figure(&self, figure: &Figure, n: usize) -> String {
        let along_x = matches!(figure.kind, FigureKind::Lines | FigureKind::Bars | FigureKind::Table);
        let selection = Selection::of(self.results, figure, along_x);
        let key = if figure.measure.is_empty() { "on_time" } else { &figure.measure };
        let of = measure(key);
        let drawn = match figure.kind {
            _ if selection.panels.is_empty() => Drawn {
                panels: Vec::new(),
                size: Size::Wide,
                bound: false,
                sample: Some(Sample::Line),
                notes: vec!["Nothing was measured at these values.".into()],
            },
            // Lines without anything to be along are bars.
            FigureKind::Lines if selection.x.is_some() => self.lines(figure, &selection, &of),
            FigureKind::Lines | FigureKind::Bars => self.bars(figure, &selection, &of),
            FigureKind::Ccdf => self.ccdf(figure, &selection),
            FigureKind::Timeline => self.timeline(figure, &selection),
            FigureKind::Rate => self.rate(&selection),
            FigureKind::Table => {
                return self.section(figure, n, "", &table::axis_by_axis(self, &selection, &of), &selection, &[]);
            }
        };
        let names = self.names(&selection);
        let mut html = drawn.sample.map_or_else(String::new, |sample| self.cast.legend(&names, sample, drawn.bound));
        let _ = write!(html, "<div class=\"panels {}\">", drawn.size.class());
        for (title, svg) in &drawn.panels {
            html.push_str("<div class=\"panel\">");
            if !title.is_empty() {
                let _ = write!(html, "<h3>{}</h3>", escape(title));
            }
            let _ = write!(html, "{svg}</div>");
        }
        html.push_str("</div>");
        let class = if drawn.size == Size::Wide { "scroll" } else { "" };
        self.section(figure, n, class, &html, &selection, &drawn.notes)
    }

    fn section(
        &self,
        figure: &Figure,
        n: usize,
        class: &str,
        body: &str,
        selection: &Selection<'_>,
        notes: &[String],
    ) -> String {
        let mut caption = Vec::new();
        if !selection.fixed.is_empty() {
            caption.push(format!("At {}.", selection.fixed.join(", ")));
        }
        caption.extend_from_slice(notes);
        if selection.all > selection.panels.len() && !selection.panels.is_empty() {
            caption.push(format!("{} of {} parameter sets are drawn.", selection.panels.len(), selection.all));
        }
        format!(
            "<section class=\"figure\"><h2><span class=\"number\">Figure {n}</span> {}</h2>\n<p class=\"note\">{}</p>\n<div class=\"{class}\">{body}</div></section>\n",
            escape(&figure.title),
            escape(&caption.join(" "))
        )
    }

    /// The contenders that have cells, in order.
    fn names(&self, selection: &Selection<'_>) -> Vec<&str> {
        let cells = || selection.panels.iter().flat_map(|panel| &panel.cells);
        self.cast.all().map(|(name, _)| name).filter(|name| cells().any(|cell| cell.contender == *name)).collect()
    }

    /// The positions along x of an axis: its values as numbers if all are (and differ), or their order.
    fn x_axis(&self, selection: &Selection<'_>, axis: usize, log: bool, ordinal: bool) -> XAxis {
        let cells: Vec<&Cell> = selection.panels.iter().flat_map(|panel| panel.cells.iter().copied()).collect();
        let texts = values(&cells, axis);
        let place = |text: &&str| {
            let cell = cells.iter().find(|cell| value(cell, axis) == *text)?;
            cell.numbers.get(axis).copied().flatten().filter(|at| at.is_finite() && (!log || *at > 0.0))
        };
        let numbers: Option<Vec<f64>> = texts.iter().map(place).collect();
        let (name, unit) = &self.results.axes[axis];
        match numbers.filter(|numbers| !ordinal && numbers.len() > 1) {
            Some(numbers) => {
                let mut at: Vec<(f64, String)> = numbers.into_iter().map(|at| (at, number(at))).collect();
                at.sort_by(|a, b| a.0.total_cmp(&b.0));
                let title = if unit.is_empty() { name.clone() } else { format!("{name}, {unit}") };
                XAxis { title, at, log, ordinal: false }
            }
            None => {
                let text = |text: &str| with_unit(text, unit);
                let at = texts.iter().zip(0u32..).map(|(value, n)| (f64::from(n), text(value))).collect();
                XAxis { title: name.clone(), at, log: false, ordinal: true }
            }
        }
    }

    /// Where a cell lies along x.
    fn x_of(&self, x: &XAxis, texts: &[&str], axis: usize, cell: &Cell) -> f64 {
        if x.ordinal {
            texts.iter().position(|text| *text == value(cell, axis)).unwrap_or_default() as f64
        } else {
            cell.numbers.get(axis).copied().flatten().unwrap_or(f64::NAN)
        }
    }

    /// A panel's series and bound over an axis.
    fn series(
        &self,
        panel: &Panel<'a>,
        of: &Measure<'_>,
        place: impl Fn(&Cell) -> f64,
        where_: impl Fn(&Cell) -> String,
    ) -> (Vec<Series>, Vec<Point>) {
        let mut bound: Vec<Point> = Vec::new();
        for cell in &panel.cells {
            let x = place(cell);
            if let Some(stat) = of.bound_of(cell).filter(|_| !bound.iter().any(|point| point.x == x)) {
                let title = format!("bound, {}: {}", where_(cell), of.value(stat.mean));
                bound.push(Point { x, y: stat.mean, half: 0.0, title });
            }
        }
        bound.sort_by(|a, b| a.x.total_cmp(&b.x));
        let series = self.cast.all().filter_map(|(name, look)| {
            let mut points: Vec<Point> = panel
                .cells
                .iter()
                .filter(|cell| cell.contender == name)
                .map(|cell| {
                    let x = place(cell);
                    of.of(cell).map_or(Point { x, y: f64::NAN, half: 0.0, title: String::new() }, |stat| {
                        let title = format!("{name}, {}: {}", where_(cell), of.full(&stat));
                        Point { x, y: stat.mean, half: stat.half_width, title }
                    })
                })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            (!points.is_empty()).then(|| Series { name: name.to_owned(), look: look.clone(), points })
        });
        (series.collect(), bound)
    }

    fn lines(&self, figure: &Figure, selection: &Selection<'a>, of: &Measure<'_>) -> Drawn {
        let axis = selection.x.unwrap_or_default();
        let x = self.x_axis(selection, axis, figure.log_x, false);
        let (texts, size) = (self.texts(selection, axis), Size::among(selection.panels.len()));
        let (_, unit) = &self.results.axes[axis];
        let drawn: Vec<_> = selection
            .panels
            .iter()
            .map(|panel| {
                let place = |cell: &Cell| self.x_of(&x, &texts, axis, cell);
                self.series(panel, of, place, |cell| with_unit(value(cell, axis), unit))
            })
            .collect();
        let y = YAxis::fit(of.heading(), of.share, figure.log_y, false, extents(&drawn, of.share));
        let panels = selection.panels.iter().zip(&drawn).map(|(panel, (series, bound))| {
            let label = format!("{} {}", figure.title, panel.title);
            let plot = Lines { size, label: &label, x: x.clone(), y: y.clone(), series, bound };
            (panel.title.clone(), plot.draw())
        });
        let panels = panels.collect();
        Drawn {
            panels,
            size,
            bound: drawn.iter().any(|panel| !panel.1.is_empty()),
            sample: Some(Sample::Line),
            notes: self.notes(&drawn, of, y.infinite),
        }
    }

    fn bars(&self, figure: &Figure, selection: &Selection<'a>, of: &Measure<'_>) -> Drawn {
        let size = Size::among(selection.panels.len());
        let groups = selection.x.filter(|&axis| self.texts(selection, axis).len() > 1);
        let (x, drawn): (XAxis, Vec<_>) = match groups {
            Some(axis) => {
                let (texts, unit) = (self.texts(selection, axis), &self.results.axes[axis].1);
                let x = self.x_axis(selection, axis, false, true);
                let place = |cell: &Cell| self.x_of(&x, &texts, axis, cell);
                let words = |cell: &Cell| with_unit(value(cell, axis), unit);
                let drawn = selection.panels.iter().map(|panel| self.series(panel, of, place, words)).collect();
                (x, drawn)
            }
            // One set of parameters: a bar for each contender, named below it.
            None => {
                let names = self.names(selection);
                let at = names.iter().zip(0u32..).map(|(name, n)| (f64::from(n), (*name).to_owned())).collect();
                let place =
                    |cell: &Cell| names.iter().position(|name| *name == cell.contender).unwrap_or_default() as f64;
                let words = |cell: &Cell| cell.contender.clone();
                let drawn = selection.panels.iter().map(|panel| self.series(panel, of, place, words)).collect();
                (XAxis { title: String::new(), at, log: false, ordinal: true }, drawn)
            }
        };
        let y = YAxis::fit(of.heading(), of.share, figure.log_y, true, extents(&drawn, of.share));
        let text = |value: f64| of.bare(value).replace("\u{a0}%", "");
        let panels = selection.panels.iter().zip(&drawn).map(|(panel, (series, bound))| {
            let label = format!("{} {}", figure.title, panel.title);
            let single = groups.is_none();
            let plot = Bars { size, label: &label, x: x.clone(), y: y.clone(), series, bound, single, value: &text };
            (panel.title.clone(), plot.draw())
        });
        let panels = panels.collect();
        Drawn {
            panels,
            size,
            bound: drawn.iter().any(|panel| !panel.1.is_empty()),
            sample: groups.map(|_| Sample::Bar),
            notes: self.notes(&drawn, of, y.infinite),
        }
    }

    fn texts(&self, selection: &Selection<'a>, axis: usize) -> Vec<&'a str> {
        let cells: Vec<&Cell> = selection.panels.iter().flat_map(|panel| panel.cells.iter().copied()).collect();
        values(&cells, axis)
    }

    /// What a reader has to know of a figure of a measure.
    fn notes(&self, drawn: &[(Vec<Series>, Vec<Point>)], of: &Measure<'_>, infinite: bool) -> Vec<String> {
        let points = || drawn.iter().flat_map(|panel| &panel.0).flat_map(|series| &series.points);
        let seeds = self.results.cells.iter().map(|cell| cell.seeds).max().unwrap_or_default();
        let mut notes = Vec::new();
        if points().any(|point| point.half > 0.0 && point.half.is_finite()) {
            notes.push(format!("Means over {seeds} seeds with 95 % intervals."));
        }
        if let Some(more) = of.higher {
            notes.push(format!("{} is better.", if more { "Higher" } else { "Lower" }));
        }
        if infinite {
            notes.push("∞: so many blocks were never delivered that there is no such value.".into());
        }
        if !points().any(|point| !point.y.is_nan()) {
            notes.push("No run had a value.".into());
        }
        notes
    }

    fn ccdf(&self, figure: &Figure, selection: &Selection<'a>) -> Drawn {
        let size = Size::among(selection.panels.len());
        let curves: Vec<Vec<Curve>> = selection
            .panels
            .iter()
            .map(|panel| {
                let curve = |(name, look): (&str, &Look)| {
                    let cell = panel.cells.iter().find(|cell| cell.contender == name)?;
                    Some(Curve { name: name.to_owned(), look: look.clone(), steps: cell.ccdf.clone() })
                };
                self.cast.all().filter_map(curve).collect()
            })
            .collect();
        let extent = Extent::of(curves.iter().flatten(), figure.log_x);
        let panels = selection.panels.iter().zip(&curves).map(|(panel, curves)| {
            let label = format!("{} {}", figure.title, panel.title);
            let (x_title, y_title, unit) = ("latency, ms", "blocks that took longer", "ms");
            let plot = Ccdf { size, label: &label, x_title, y_title, unit, log_x: figure.log_x, extent, curves };
            (panel.title.clone(), plot.draw())
        });
        let notes = vec![
            "Of all seeds' blocks, the share that took longer than x; markers at 50, 90, 99, 99.9 … %.".into(),
            "A plateau to the right edge is the share never delivered.".into(),
        ];
        Drawn { panels: panels.collect(), size, bound: false, sample: Some(Sample::Line), notes }
    }

    fn timeline(&self, figure: &Figure, selection: &Selection<'a>) -> Drawn {
        let only: Option<u8> = figure.measure.strip_prefix("on_time:").and_then(|priority| priority.parse().ok());
        let mut seconds = 1.0f64;
        let drawn = selection.panels.iter().map(|panel| {
            let mut priorities: Vec<u8> = panel.cells.iter().flat_map(|cell| priorities(cell)).collect();
            priorities.sort_unstable();
            priorities.dedup();
            priorities.retain(|priority| only.is_none_or(|only| only == *priority));
            let strips: Vec<Strip> = priorities
                .iter()
                .map(|&priority| {
                    let title = if priorities.len() > 1 || only.is_some() {
                        format!("priority {priority}")
                    } else {
                        String::new()
                    };
                    let series: Vec<Series> =
                        self.cast.all().filter_map(|(name, look)| on_time(panel, priority, name, look)).collect();
                    let y = YAxis {
                        title: "on time, by second of hand-over".into(),
                        share: true,
                        domain: (0.0, 1.0),
                        log: false,
                        infinite: false,
                    };
                    Strip { title, y, series }
                })
                .collect();
            (panel.title.clone(), strips)
        });
        let drawn: Vec<_> = drawn.collect();
        for point in
            drawn.iter().flat_map(|panel| &panel.1).flat_map(|strip| &strip.series).flat_map(|series| &series.points)
        {
            seconds = seconds.max(point.x + 1.0);
        }
        let panels = drawn.iter().filter(|panel| !panel.1.is_empty()).map(|(title, strips)| {
            let label = format!("{} {title}", figure.title);
            (title.clone(), Strips { label: &label, strips, seconds, bin: 1.0 }.draw())
        });
        let notes = vec!["Lines are means over the seeds; areas reach down to the worst seed.".into()];
        Drawn { panels: panels.collect(), size: Size::Wide, bound: false, sample: Some(Sample::Line), notes }
    }

    fn rate(&self, selection: &Selection<'a>) -> Drawn {
        let panels = selection.panels.iter().map(|panel| {
            let course = |title: &str, unit: &str, of: &dyn Fn(&Cell) -> Vec<f64>| {
                let series: Vec<Series> =
                    self.cast.all().filter_map(|(name, look)| course(panel, name, look, unit, of)).collect();
                let values = series.iter().flat_map(|series| &series.points).map(|point| point.y);
                let y = YAxis::fit(unit.into(), false, false, true, values.collect::<Vec<_>>());
                Strip { title: title.into(), y, series }
            };
            let queue = |cell: &Cell| cell.timeline.queue_bytes.iter().map(|bytes| bytes / 1e3).collect();
            let strips = [
                course("arrivals", "Mbit/s", &|cell| cell.timeline.arrivals_mbps.clone()),
                course("queue of the first path", "KB", &queue),
            ];
            let bin = panel.cells.iter().map(|cell| bin_seconds(cell)).fold(0.0, f64::max);
            let points = strips.iter().flat_map(|strip| &strip.series).flat_map(|series| &series.points);
            let seconds = points.map(|point| point.x + bin).fold(0.1, f64::max);
            (
                panel.title.clone(),
                Strips { label: "arrivals and queue over time", strips: &strips, seconds, bin }.draw(),
            )
        });
        let notes = vec![
            "New block bytes that arrived, and what stood in the first path's queue; means over the seeds.".into(),
        ];
        Drawn { panels: panels.collect(), size: Size::Wide, bound: false, sample: Some(Sample::Line), notes }
    }
}

/// Every value an axis has to hold, intervals included.
fn extents(drawn: &[(Vec<Series>, Vec<Point>)], share: bool) -> Vec<f64> {
    let points = drawn.iter().flat_map(|(series, bound)| series.iter().flat_map(|series| &series.points).chain(bound));
    points
        .flat_map(|point| {
            let half = if point.half.is_finite() && point.y.is_finite() { point.half } else { 0.0 };
            // An interval may reach beyond what a share can be; the axis need not.
            let edge = |at: f64| if share && (0.0..=1.0).contains(&point.y) { at.clamp(0.0, 1.0) } else { at };
            [edge(point.y - half), point.y, edge(point.y + half)]
        })
        .collect()
}

/// The priorities a cell's timeline has.
fn priorities(cell: &Cell) -> Vec<u8> {
    (0..cell.timeline.on_time.len()).map(|n| cell.priorities.get(n).map_or(n as u8, |of| of.priority)).collect()
}

/// A contender's share on time of a priority by the second.
fn on_time(panel: &Panel<'_>, priority: u8, name: &str, look: &Look) -> Option<Series> {
    let cell = panel.cells.iter().find(|cell| cell.contender == name)?;
    let n = priorities(cell).iter().position(|of| *of == priority)?;
    let least = cell.timeline.on_time_min.get(n);
    let of = measure("on_time");
    let points = cell.timeline.on_time[n].iter().enumerate().map(|(second, &share)| {
        let least = least.and_then(|least| least.get(second)).copied().filter(|least| *least < share).unwrap_or(share);
        let title = format!("{name}, second {second}: {}, worst seed {}", of.value(share), of.value(least));
        Point { x: second as f64, y: share, half: share - least, title }
    });
    let points: Vec<Point> = points.collect();
    (!points.is_empty()).then(|| Series { name: name.to_owned(), look: look.clone(), points })
}

/// How many bins become one point of a course.
fn grouped(bins: usize) -> usize {
    bins.div_ceil(MOST_BINS).max(1)
}

/// The time one point of a cell's course stands for.
fn bin_seconds(cell: &Cell) -> f64 {
    let bins = cell.timeline.arrivals_mbps.len().max(cell.timeline.queue_bytes.len());
    cell.timeline.bin_ms / 1e3 * grouped(bins) as f64
}

fn course(panel: &Panel<'_>, name: &str, look: &Look, unit: &str, of: &dyn Fn(&Cell) -> Vec<f64>) -> Option<Series> {
    let cell = panel.cells.iter().find(|cell| cell.contender == name)?;
    let bins = of(cell);
    let (size, span) = (grouped(bins.len()), bin_seconds(cell));
    let points: Vec<Point> = bins
        .chunks(size)
        .enumerate()
        .map(|(n, chunk)| {
            let (x, y) = (n as f64 * span, chunk.iter().sum::<f64>() / chunk.len() as f64);
            Point { x, y, half: 0.0, title: format!("{name}, {} s: {} {unit}", number(x), number(y)) }
        })
        .collect();
    (!points.is_empty()).then(|| Series { name: name.to_owned(), look: look.clone(), points })
}
