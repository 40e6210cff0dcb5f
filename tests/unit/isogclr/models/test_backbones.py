"""Backbones, projectors, and both as a model of two views."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from isogclr.errors import ModelError
from isogclr.models.backbones import BACKBONES, STEMS, ViewModel, create_backbone, create_projector


def layers(model: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [one for one in model.modules() if isinstance(one, kind)]


class TestBackbones:
    @pytest.mark.parametrize("name", BACKBONES)
    @pytest.mark.parametrize("stem", STEMS)
    def test_width_is_what_comes_out(self, name: str, stem: str) -> None:
        backbone = create_backbone(name, stem).eval()
        with torch.no_grad():
            assert backbone(torch.rand(2, 3, 32, 32)).shape == (2, backbone.width)

    def test_weights_are_torchvisions_without_fc(self) -> None:
        from torchvision.models import resnet18  # noqa: PLC0415

        theirs = resnet18(weights=None)
        found = theirs.load_state_dict(create_backbone("resnet18", "imagenet").state_dict(), strict=False)
        assert sorted(found.missing_keys) == ["fc.bias", "fc.weight"]
        assert found.unexpected_keys == []

    def test_the_cifar_stem_keeps_the_size_of_the_picture(self) -> None:
        small = create_backbone("resnet18", "cifar")
        pictures = torch.rand(1, 3, 32, 32)
        assert small.maxpool(small.conv1(pictures)).shape[2:] == (32, 32)
        assert small.conv1.kernel_size == (3, 3)
        large = create_backbone("resnet18", "imagenet")
        assert large.maxpool(large.conv1(pictures)).shape[2:] == (8, 8)

    def test_only_one_of_the_tiny_ones_knows_the_batch(self) -> None:
        pictures = torch.rand(4, 3, 16, 16)
        for name, is_alone in (("tiny-groupnorm", True), ("tiny", False)):
            backbone = create_backbone(name, "cifar").train()
            with torch.no_grad():
                alone, together = backbone(pictures[:2]), backbone(pictures)[:2]
            assert torch.allclose(alone, together, atol=1e-6) == is_alone

    @pytest.mark.parametrize(
        ("name", "stem", "said"), [("resnet34", "cifar", "resnet18"), ("tiny", "c", "imagenet")]
    )
    def test_unknown_names(self, name: str, stem: str, said: str) -> None:
        with pytest.raises(ModelError, match=f"choose one of .*{said}"):
            create_backbone(name, stem)


class TestProjector:
    def test_batch_norm_and_relu_behind_all_but_the_last(self) -> None:
        kinds = [type(one).__name__ for one in create_projector(8, "16-32-4")]
        assert kinds == ["Linear", "BatchNorm1d", "ReLU", "Linear", "BatchNorm1d", "ReLU", "Linear"]

    def test_no_biases(self) -> None:
        projector = create_projector(8, "16-4")
        assert [one.bias for one in layers(projector, nn.Linear)] == [None, None]

    def test_extra_outputs_are_behind_the_last_width(self) -> None:
        assert create_projector(8, "16-4", extra_outputs=1)(torch.rand(3, 8)).shape == (3, 5)

    @pytest.mark.parametrize("text", ["", "8192-", "a-b", "0-8", "8192x8192", "-5"])
    def test_what_is_no_list_of_widths(self, text: str) -> None:
        with pytest.raises(ModelError, match="expected the widths of its layers"):
            create_projector(8, text)


class TestViewModel:
    def model(self, **options: object) -> ViewModel:
        backbone = create_backbone("tiny", "cifar")
        extra = options.get("extra_outputs", 0)
        return ViewModel(backbone, create_projector(backbone.width, "16-8", extra), **options)  # type: ignore[arg-type]

    def test_unit_length_if_the_loss_wants_it(self) -> None:
        views = torch.rand(4, 3, 16, 16), torch.rand(4, 3, 16, 16)
        for one in self.model()(*views):
            torch.testing.assert_close(one.norm(dim=1), torch.ones(4))
        assert not torch.allclose(self.model(unit_features=False)(*views)[0].norm(dim=1), torch.ones(4))

    def test_extra_outputs_are_no_part_of_the_direction(self) -> None:
        first, second = self.model(extra_outputs=1)(torch.rand(4, 3, 16, 16), torch.rand(4, 3, 16, 16))
        assert first.shape == second.shape == (4, 9)
        torch.testing.assert_close(first[:, :8].norm(dim=1), torch.ones(4))

    def test_batch_norm_sees_both_views_together(self) -> None:
        """Exchanged views give exchanged features; views apart would have statistics of their own."""
        model = self.model().train()
        first, second = torch.rand(4, 3, 16, 16), 5 + torch.rand(4, 3, 16, 16)
        with torch.no_grad():
            one, other = model(first, second)
            again, _ = model(first, first)
        assert not torch.allclose(one, again, atol=1e-3)
        with torch.no_grad():
            exchanged = model(second, first)
        torch.testing.assert_close(exchanged, (other, one), atol=1e-5, rtol=1e-4)

    def test_names_of_weights(self) -> None:
        assert {name.partition(".")[0] for name in self.model().state_dict()} == {"backbone", "projector"}
