//! Devices whose memory an operator reads besides its own.

use morphgl_registry::{Error, Key, Machine, Place, Result};
use serde_json::Value;

use crate::{BACKEND, Device, accelerators};

/// Opens the devices that a value of an operator's option `peers` names besides its own `device`: none (`null`, `"none"`), `"all"` of the
/// machine's, or a list of places.
///
/// # Errors
///
/// Another value, the own device, a device that is named twice or cannot be opened, and one whose memory `device` cannot access: the
/// message then names those that it can.
pub fn peers(operator: &Key, device: &Device, value: &Value) -> Result<Vec<Device>> {
    let wrong = |message: String| Error::setting(operator, format!("options: peers: {message}"));
    let parse = |place: &Value| {
        let parsed = place.as_str().and_then(|text| text.parse().ok());
        parsed.ok_or_else(|| wrong(format!("{place} is no place; give such as \"{BACKEND}:1\"")))
    };
    let places: Vec<Place> = match value {
        Value::Null => Vec::new(),
        Value::String(word) if word == "none" => Vec::new(),
        Value::String(word) if word == "all" => {
            let places = accelerators(&Machine::probe()).into_iter().map(|accelerator| accelerator.place);
            places.filter(|place| place != device.place()).collect()
        }
        Value::Array(list) => list.iter().map(parse).collect::<Result<_>>()?,
        other => {
            let places = format!("[\"{BACKEND}:1\"]");
            return Err(wrong(format!("{other}; give \"none\", \"all\" or a list of places such as {places}")));
        }
    };
    for (i, place) in places.iter().enumerate() {
        if place == device.place() {
            return Err(wrong(format!("{place} is the device of the operator itself; leave it out")));
        }
        if places[..i].contains(place) {
            return Err(wrong(format!("{place} is named twice; leave one out")));
        }
    }
    let (mut accessible, mut apart) = (Vec::new(), Vec::new());
    for place in &places {
        let peer = Device::open(place, operator)?;
        match device.reaches(&peer)? {
            true => accessible.push(peer),
            false => apart.push(place.to_string()),
        }
    }
    if apart.is_empty() {
        return Ok(accessible);
    }
    let names: Vec<String> = accessible.iter().map(|peer| format!("\"{}\"", peer.place())).collect();
    let (apart, names) = (apart.join(", "), names.join(", "));
    Err(wrong(format!("{} cannot read the memory of {apart}; give [{names}]", device.place())))
}
