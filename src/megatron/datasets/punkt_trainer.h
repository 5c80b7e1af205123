// Learns Punkt's parameters from text without marks (Kiss and Strunk, 2006), as nltk's PunktTrainer
// does with its default settings: the same text gives the same parameters.
#pragma once

#include <string_view>

#include "megatron/datasets/punkt_parameters.h"

namespace megatron {

/// Learns from one text, which is valid UTF-8. It takes about thirty times the text's memory.
PunktParameters train_punkt(std::string_view text);

}  // namespace megatron
