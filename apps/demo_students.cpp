// apps/demo_students.cpp: a database of students asked exactly, softly, and for its average.
#include <algorithm>
#include <cctype>
#include <iostream>
#include <string>
#include <vector>

#include <qkv/attend.h>
#include <qkv/plot.h>

#include "demo.h"

namespace qkv::apps {
namespace {

struct Student {
  std::string name, major;
};
const std::vector<Student> students = {
    {"John Doe", "psychology"}, {"Jane Roe", "biology"},     {"Joan Smith", "psychology"},
    {"Don Jones", "history"},   {"Maria Garcia", "physics"}, {"Wei Chen", "biology"},
};
const std::vector<std::string> majors = {"psychology", "biology", "history", "physics"};

constexpr std::size_t symbols = 27;  // the letters, and everything else

std::size_t symbol(char c) {
  const int lower = std::tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'z' ? static_cast<std::size_t>(lower - 'a') + 1 : 0;
}

// How often each pair of neighbouring characters occurs in the name, with a blank before and after it: a name as a
// vector that a misspelling turns only a little.
std::vector<double> pairs_of(const std::string& name) {
  std::vector<double> counts(symbols * symbols);
  const std::string text = " " + name + " ";
  for (std::size_t i = 1; i < text.size(); ++i) counts[symbol(text[i - 1]) * symbols + symbol(text[i])] += 1;
  return counts;
}

Tensor matrix_of(const std::vector<std::vector<double>>& rows) {
  Tensor matrix({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows.front().size())},
                Dtype::float64);
  auto next = matrix.values<double>().begin();
  for (const std::vector<double>& row : rows) next = std::copy(row.begin(), row.end(), next);
  return matrix;
}

// The majors one-hot, so that an answer, a weighted sum of them, is a distribution over majors.
std::vector<double> one_hot(const std::string& major) {
  std::vector<double> values(majors.size());
  std::transform(majors.begin(), majors.end(), values.begin(),
                 [&](const std::string& other) { return other == major ? 1 : 0; });
  return values;
}

struct Answer {
  std::vector<double> weights;  // one per student
  std::vector<double> majors;
};

class Registrar {
 public:
  Registrar() {
    std::vector<std::vector<double>> keys, values;
    for (const Student& student : students) {
      keys.push_back(pairs_of(student.name));
      values.push_back(one_hot(student.major));
    }
    keys_ = matrix_of(keys);
    values_ = matrix_of(values);
  }

  Answer ask(const std::string& name, const Weigh& weigh, double temperature = 1) const {
    const Tensor query = matrix_of({pairs_of(name)});
    const Attended attended = attend(
        query, keys_, values_, {.score = cosine(), .temperature = temperature, .weigh = weigh, .want_weights = true});
    const auto weights = attended.weights.values<double>(), out = attended.out.values<double>();
    return {{weights.begin(), weights.end()}, {out.begin(), out.end()}};
  }

 private:
  Tensor keys_, values_;
};

// A column of bars for each answer.
std::string drawn(const std::vector<Answer>& answers, std::vector<double> Answer::*part, const BarsOptions& options) {
  std::vector<std::vector<double>> columns;
  columns.reserve(answers.size());
  for (const Answer& answer : answers) columns.push_back(answer.*part);
  const Tensor matrix = matrix_of(columns);
  return bars_text(matrix.view().swapped(0, 1), options);
}

// The major that the answer is about, of a query that weighs at most one student.
std::string found(const Answer& answer) {
  const auto one = std::find(answer.majors.begin(), answer.majors.end(), 1.0);
  return one == answer.majors.end() ? "nothing" : majors[static_cast<std::size_t>(one - answer.majors.begin())];
}

void show_exact(const Registrar& registrar, BarsOptions options) {
  std::cout << "1. An exact query. The best key weighs 1 and all others 0, if its score is 1\n"
               "   (`hard`, with a minimum); a misspelled name finds nothing.\n\n";
  // A little less than 1: a cosine of equal vectors is 1 up to rounding.
  const Weigh exact = hard(0.999);
  options.columns = {"John Doe", "Jon Doe"};
  options.title = "Weights";
  const std::vector<Answer> answers = {registrar.ask("John Doe", exact), registrar.ask("Jon Doe", exact)};
  std::cout << drawn(answers, &Answer::weights, options);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::cout << "The query \"" << options.columns[i] << "\" finds " << found(answers[i]) << ".\n";
  }
  std::cout << "\n";
}

void show_soft(const Registrar& registrar, BarsOptions options) {
  std::cout << "2. A soft query: \"Jon Doe\" again. Every key weighs e^(score / temperature), over\n"
               "   the sum of all (`softmax`). The higher the temperature, the more the others\n"
               "   have to say, up to the plain average of all students (`uniform`).\n\n";
  options.columns = {"0.03", "0.1", "0.3", "average"};
  std::vector<Answer> answers;
  for (const double temperature : {0.03, 0.1, 0.3}) answers.push_back(registrar.ask("Jon Doe", softmax(), temperature));
  answers.push_back(registrar.ask("Jon Doe", uniform()));
  options.title = "Weights, at temperatures";
  std::cout << drawn(answers, &Answer::weights, options) << "\n";
  options.title = "The answer: majors, weighted";
  options.rows = majors;
  std::cout << drawn(answers, &Answer::majors, options);
}

}  // namespace

void show_students(bool color) {
  std::cout << "A database of students. The key is a name, the value a major:\n\n";
  BarsOptions options{.color = color, .width = 9};
  for (const Student& student : students) {
    std::cout << std::string(16 - student.name.size(), ' ') << student.name << "  " << student.major << "\n";
    options.rows.push_back(student.name);
  }
  std::cout << "\nAttention asks it: every key gets a score for how well it answers the query,\n"
               "scores become weights, and the answer is the weighted sum of the values. Here\n"
               "a name is a vector that counts its pairs of letters, and the score is the\n"
               "cosine: 1 for the same pairs, 0 where none is shared.\n\n";
  const Registrar registrar;
  show_exact(registrar, options);
  show_soft(registrar, options);
}

}  // namespace qkv::apps
