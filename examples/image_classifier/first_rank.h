#pragma once

#include <functional>
#include <string>

#include "sinew/groups/process_group.h"

namespace image_classifier {

/// What rank 0 has, at all ranks.
std::string from_first_rank(std::string bytes, const sinew::ProcessGroup& group);

/// Throws std::runtime_error at a rank whose pictures (PictureSet::listing()) are others than those
/// of rank 0, which names the first difference: their numbers would mean others. All ranks call it.
void check_same_pictures(const std::string& listing, const sinew::ProcessGroup& group);

/// Does `work` at rank 0 alone: perhaps only its host has the files. All ranks call it; when it
/// throws there, all throw std::runtime_error with its text.
void on_first_rank(const sinew::ProcessGroup& group, const std::function<void()>& work);

}  // namespace image_classifier
