use super::*;

#[track_caller]
fn check(text: &str, name: &str, role: Role, space: &str) {
    assert_eq!(Field::parse(text), Field { name: name.into(), role, space: space.into() });
}

#[test]
fn fields_have_a_name_a_role_and_a_space() {
    check(":ID", "", Role::Id, "");
    check("movieId:ID(Movie-ID)", "movieId", Role::Id, "Movie-ID");
    check("id:ID(Person){id-type:int}", "id", Role::Id, "Person");
    check(":START_ID(Person)", "", Role::StartId, "Person");
    check(":end_id", "", Role::EndId, "");
    check("year:int", "year", Role::Number, "");
    check("released:boolean", "released", Role::Number, "");
    check("dc:date:long", "dc:date", Role::Number, "");
    check("tags:int[]", "tags", Role::Unread, "");
    check("place:point{crs:WGS-84}", "place", Role::Unread, "");
    check("title", "title", Role::Unread, "");
    check("secret:IGNORE", "secret", Role::Ignored, "");
}
