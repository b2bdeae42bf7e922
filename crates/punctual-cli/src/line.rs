//! A session in one line.

use crate::{
    path_figures::PathFigures,
    stats::Figures,
    window::{PathWindow, Window},
};

/// Columns of a terminal that has as many as it always had.
pub(crate) const WIDTH: usize = 80;

/// How much is said of each path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// In words.
    Full,
    /// Without the units' spaces, and of health only what is not well.
    Short,
}

/// As much as fits `width` columns: of many paths less is said of each, and of more than there is room for each has its turn.
pub(crate) fn fitted(now: &Figures, last: &Window, width: usize, turn: u32) -> String {
    let all = [Detail::Full, Detail::Short].map(|detail| head(now) + &paths(now, last, detail));
    let fits = all.into_iter().find(|line| columns(line) <= width);
    fits.unwrap_or_else(|| shortened(&in_turn(now, last, width, turn), width))
}

/// How many paths are well, and as many of them as there is room for, beginning with the one whose turn it is.
fn in_turn(now: &Figures, last: &Window, width: usize, turn: u32) -> String {
    let head = head(now);
    let each: Vec<_> = each(now, last).collect();
    if each.is_empty() {
        return head;
    }
    let well = each.iter().filter(|(path, _)| path.is_active()).count();
    let count = format!("  {well}/{} ok", each.len());
    let first = turn as usize % each.len();
    let (path, window) = each[first];
    let least = of_path(&path.name, path, window, Detail::Short);
    let room = width.saturating_sub(columns(&head));
    if columns(&count) + columns(&least) > room {
        let rest = columns(&least) - columns(&path.name);
        let name = end_of_name(&path.name, room.saturating_sub(rest));
        return head + &of_path(&name, path, window, Detail::Short);
    }
    let mut line = head + &count + &least;
    for (path, window) in each.iter().cycle().skip(first + 1).take(each.len() - 1) {
        let more = of_path(&path.name, path, window, Detail::Short);
        if columns(&line) + columns(&more) > width {
            break;
        }
        line += &more;
    }
    line
}

/// Of a name that is too long, its end: by that `wwan0` and `wwan1`, or two addresses of one network, differ.
fn end_of_name(name: &str, width: usize) -> String {
    let left_out = columns(name).saturating_sub(width.max(2));
    if left_out == 0 { name.to_owned() } else { ['…'].into_iter().chain(name.chars().skip(left_out + 1)).collect() }
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// The beginning of a text that does not fit, and a sign that there is more.
fn shortened(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Everything, however long it is.
pub(crate) fn whole(now: &Figures, last: &Window) -> String {
    format!("{}{:.0} s  {}{}", now.prefix(), now.seconds, now.counts(), paths(now, last, Detail::Full))
}

fn head(now: &Figures) -> String {
    let missed = now.missed();
    let missed = if missed == 0 { String::new() } else { format!(", {missed} missed") };
    format!("{}{:.0} s  {} on time{missed}", now.prefix(), now.seconds, now.on_time)
}

fn paths(now: &Figures, last: &Window, detail: Detail) -> String {
    each(now, last).map(|(path, last)| of_path(&path.name, path, last, detail)).collect()
}

/// The paths there are, and what those of the same name did lately.
fn each<'a>(now: &'a Figures, last: &'a Window) -> impl Iterator<Item = (&'a PathFigures, &'a PathWindow)> {
    let open = now.paths.iter().filter(|path| !path.is_closed());
    open.filter_map(|path| Some((path, last.paths.iter().find(|last| last.name == path.name)?)))
}

/// Its health, its rate in the window (of the direction that has more), recent loss, and the one-way delay.
fn of_path(name: &str, path: &PathFigures, last: &PathWindow, detail: Detail) -> String {
    let health = if path.is_active() { "ok" } else { path.health };
    let megabits = last.sent_per_second.max(last.received_per_second) * 8.0 / 1e6;
    let (loss, delay) = (path.loss * 100.0, path.one_way_delay_ms);
    match (detail, health) {
        (Detail::Full, _) => format!(" | {name} {health} {megabits:.1} Mb/s {loss:.1} % {delay:.0} ms"),
        (_, "ok") => format!("  {name} {megabits:.1}M {loss:.0}% {delay:.0}ms"),
        _ => format!("  {name} {health}! {megabits:.1}M {loss:.0}% {delay:.0}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Tally;

    fn figures(names: &[&str]) -> (Figures, Window) {
        let mut figures = Tally::default().figures(None, &[], |_| unreachable!());
        (figures.seconds, figures.on_time, figures.late) = (3_600.0, 108_000, 12);
        figures.paths = (0..).zip(names).map(|(id, name)| PathFigures::example(id, name)).collect();
        let window = Window::between(None, &figures);
        (figures, window)
    }

    #[test]
    fn the_more_paths_the_shorter() {
        let (now, last) = figures(&["eth0"]);
        let full = "3600 s  108000 on time, 12 missed | eth0 ok 0.0 Mb/s 1.0 % 23 ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2, 0), full);
        let (mut now, last) = figures(&["eth0", "wlan0"]);
        let short = "3600 s  108000 on time, 12 missed  eth0 0.0M 1% 23ms  wlan0 0.0M 1% 23ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2, 0), short);
        now.paths[0].health = "suspect";
        (now.on_time, now.late) = (300, 0);
        let ill = "3600 s  300 on time  eth0 suspect! 0.0M 1% 23ms  wlan0 0.0M 1% 23ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2, 0), ill);
    }

    #[test]
    fn whatever_there_is_fits() {
        for paths in 0..16 {
            let names: Vec<String> = (0..paths).map(|n| format!("2001:db8::{n}")).collect();
            let (now, last) = figures(&names.iter().map(String::as_str).collect::<Vec<_>>());
            for width in [20, 40, WIDTH - 2] {
                let line = fitted(&now, &last, width, paths);
                assert!(line.chars().count() <= width, "{line}");
            }
        }
    }

    #[test]
    fn of_many_paths_each_has_its_turn() {
        let names = ["eth0", "wlan0", "wwan0", "wwan1", "usb0", "path 5"];
        for paths in 3..=names.len() {
            let (mut now, last) = figures(&names[..paths]);
            now.paths[2].health = "suspect";
            let lines: Vec<String> = (7..7 + paths as u32).map(|turn| fitted(&now, &last, WIDTH - 2, turn)).collect();
            for (name, path) in names.iter().zip(&now.paths) {
                let ill = if path.is_active() { "" } else { " suspect!" };
                let told = format!("  {name}{ill} 0.0M 1% 23ms");
                assert!(lines.iter().any(|line| line.contains(&told)), "{told}: {lines:#?}");
            }
            let well = format!(" missed  {}/{paths} ok  ", paths - 1);
            assert!(lines.iter().all(|line| line.contains(&well) && line.ends_with("ms")), "{lines:#?}");
        }
        // Where there is room, more than one at a time.
        let (mut now, last) = figures(&["a", "b", "c", "d"]);
        (now.seconds, now.on_time, now.late) = (9.0, 300, 0);
        let line = "9 s  300 on time  4/4 ok  d 0.0M 1% 23ms  a 0.0M 1% 23ms  b 0.0M 1% 23ms";
        assert_eq!(fitted(&now, &last, WIDTH - 2, 3), line);
    }

    #[test]
    fn a_long_name_hides_nothing_else() {
        let names = ["2001:db8:aaaa:bbbb:cccc:dddd:eeee:7", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:8"];
        let (mut now, last) = figures(&names);
        now.peer = Some("192.0.2.7:50000".into());
        let line = fitted(&now, &last, WIDTH - 2, 1);
        assert_eq!(line, "192.0.2.7:50000: 3600 s  108000 on time, 12 missed  …:dddd:eeee:8 0.0M 1% 23ms");
    }
}
