// apps/demo.h: the parts of `qkv demo`. Each prints to the standard output, with colours or without.
#pragma once

namespace qkv::apps {

void show_students(bool color);   // a database asked exactly, softly, and for its average
void show_sentences(bool color);  // who looks at whom in three padded sentences

}  // namespace qkv::apps
