//! A plain reader of edge lists, to compare with: the whole text in memory, one rule after the other.

/// The edges `source>target` or `source>target:weight`, sorted, by the options of [`super::read`].
pub(crate) fn edges(text: &str, how: &str) -> Vec<String> {
    let option = |name: &str| how.split(' ').rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let has = |name: &str| how.split(' ').any(|word| word == name);
    let text = text.trim_start_matches('\u{feff}');
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with(['#', '%']);
    let konect: Option<Vec<&str>> = text.lines().take_while(|line| is_comment(line)).find_map(|line| {
        let words: Vec<&str> = line.trim_start_matches('%').split_whitespace().collect();
        matches!(words.first(), Some(&"sym" | &"asym" | &"bip")).then_some(words)
    });
    // Numbers of sources and targets follow that of edges.
    let sizes = text.lines().take_while(|line| is_comment(line)).find_map(|line| {
        let words: Vec<&str> = line.trim_start_matches('%').split_whitespace().collect();
        words.get(1).filter(|_| words.len() == 3).and_then(|sources| sources.parse::<u64>().ok())
    });
    let mut lines: Vec<&str> = text.lines().skip_while(|line| is_comment(line)).collect();
    lines.retain(|line| !line.trim().is_empty() && (has("strings") || !is_comment(line)));
    let Some(first) = lines.first().copied() else { return Vec::new() };
    let (before, _) = dictionary(first);
    let separator = separator(before);
    let mut names: Vec<String> = split(before, separator).iter().map(|name| name.to_lowercase()).collect();
    let is_number = |field: &str| field.parse::<f64>().is_ok() && field.contains(|c: char| c.is_ascii_digit());
    let mut named = !names.iter().any(|name| is_number(name));
    if let Some(columns) = option("columns") {
        (names, named) = (columns.split('+').map(String::from).collect(), true);
    } else if named {
        lines.remove(0);
    }
    let find = |given: Option<&str>, known: &[&str], place: Option<usize>| match given {
        Some(column) => match column.parse::<usize>() {
            Ok(number) => Some(number - 1),
            Err(_) => names.iter().position(|name| *name == column.to_lowercase()),
        },
        None if named => names.iter().position(|name| known.contains(&name.as_str())),
        None => place,
    };
    let default = option("src").or(option("dst")).is_none();
    let weighted =
        konect.as_ref().map_or(names.len() == 3, |k| k[1] != "unweighted" && k[1] != "positive" && names.len() > 2);
    let source = find(option("src"), &["src", "source", "from", "u", "row", "id_1"], Some(0)).expect("sources");
    let target = find(option("dst"), &["dst", "target", "to", "v", "col", "id_2"], Some(1)).expect("targets");
    let weight = find(option("weight"), &["weight", "w"], (weighted && default).then_some(2));
    let mut found: Vec<(String, String, Option<String>)> = Vec::new();
    for line in lines {
        let (ids, attributes) = dictionary(line);
        let fields = split(ids, separator);
        let id = |column: usize| match has("strings") {
            true => fields[column].clone(),
            false => (fields[column].parse::<u64>())
                .unwrap_or_else(|_| fields[column].parse::<f64>().expect("an id") as u64)
                .to_string(),
        };
        let inside = attributes.and_then(|text| {
            let value = text.split_once("weight'").or_else(|| text.split_once("weight\""))?.1;
            Some(value.trim_start_matches(':').split([',', '}']).next()?.trim().to_string())
        });
        let weight = weight.map(|column| fields[column].clone()).or(inside).filter(|_| !has("bare"));
        found.push((id(source), id(target), weight));
    }
    let mut added = None;
    if has("apart") {
        let prefix = |column: usize, other: &str| if named { names[column].clone() } else { other.to_string() };
        let first = if has("compact") {
            0
        } else {
            option("first").map_or(u64::from(konect.is_some()), |f| f.parse().expect("an id"))
        };
        let highest = found.iter().filter_map(|edge| edge.0.parse::<u64>().ok()).max().unwrap_or(0);
        let offset = (highest + 1 - first).max(sizes.filter(|_| !has("compact")).unwrap_or(0));
        for (source_id, target_id, _) in &mut found {
            if has("strings") {
                *source_id = format!("{}:{source_id}", prefix(source, "source"));
                *target_id = format!("{}:{target_id}", prefix(target, "target"));
            } else {
                let id: u64 = target_id.parse().expect("an id");
                *target_id = (id + offset).to_string();
                added = Some(offset);
            }
        }
    }
    if let Some(listed) = option("listed").filter(|_| has("unlisted-dropped")) {
        let listed: Vec<&str> = listed.split('+').collect();
        found.retain(|(source, target, _)| [source, target].iter().all(|id| listed.contains(&id.as_str())));
    }
    // Edges have the ids of both kinds as the file does, those of the second one behind a plus.
    if let Some(offset) = added {
        for (_, target, _) in &mut found {
            *target = format!("+{}", target.parse::<u64>().expect("an id") - offset);
        }
    }
    let show = |(source, target, weight): (String, String, Option<String>)| match weight {
        Some(weight) => format!("{source}>{target}:{}", weight.parse::<f32>().expect("a weight")),
        None => format!("{source}>{target}"),
    };
    let mut edges: Vec<String> = found.into_iter().map(show).collect();
    edges.sort();
    edges
}

/// What is before a dictionary of attributes, and the dictionary.
fn dictionary(line: &str) -> (&str, Option<&str>) {
    match line.split_once('{') {
        Some((ids, attributes)) => (ids.trim().trim_end_matches(','), Some(attributes)),
        None => (line, None),
    }
}

/// The separator of fields; `None` for blanks.
fn separator(line: &str) -> Option<char> {
    let found = [',', ';', '\t'].into_iter().find(|&c| line.contains(c))?;
    let numbers = line.split_whitespace().all(|word| word.parse::<f64>().is_ok());
    let mixed = found == '\t' && numbers && line.split_whitespace().count() > line.split('\t').count();
    (!mixed).then_some(found)
}

fn split(line: &str, separator: Option<char>) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (vec![], String::new(), false);
    for c in line.chars() {
        match c {
            '"' => {
                // A quote in quotes is doubled.
                quoted = !quoted;
                field.push(c);
            }
            _ if !quoted && separator.map_or(c.is_whitespace(), |s| s == c) => fields.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    fields.push(field);
    let fields = fields.into_iter().map(|field| {
        let field = field.trim();
        match field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inside) => inside.replace("\"\"", "\""),
            None => field.to_string(),
        }
    });
    fields.filter(|field| separator.is_some() || !field.is_empty()).collect()
}
